// Package spelling decides when two texts that people type are the same address, password, code or phone number
// (contract, section 5). Keyboards, browsers and address books send one text in several spellings: Unicode has more
// than one form of most letters with marks, Chromium sends the domain of an address in Punycode, and copied text has
// invisible characters.
//
//	email.go     Email, Claimed, Key, Spellings, OnWire: e-mail addresses; Search, Fold
//	spelling.go  Password; Pasted, Code, Phone: text that people paste
//
// Every entrance of both services uses it: pages, API, public forms, erasure, upstream OpenID Connect, the operator's
// commands, and the keys of limits. The test in e2e/entrances lists the entrances and fails on a new one. Which names
// people may have is decided in displayname.
package spelling

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/width"
)

// Password returns the spelling of a password that is hashed, measured and estimated. It is Unicode form KC: of the two
// that NIST SP 800-63B (section 3.1.1.2) names, the one that composes, as most keyboards do, so that most hashes of
// earlier releases stay as they are. Form C would refuse a user whose input method sends full-width letters, or a
// no-break space, at one device and not at another.
func Password(text string) string { return norm.NFKC.String(text) }

// Pasted returns a line that a person pasted: without invisible format characters, which copied text has at its ends
// and around numbers, with ordinary spaces, and trimmed. Joiners stay: they are part of some words.
func Pasted(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\u200c' || r == '\u200d':
			return r
		case unicode.Is(unicode.Cf, r):
			return -1
		case unicode.Is(unicode.Z, r):
			return ' '
		}
		return r
	}, text))
}

// Code returns a code as it is compared, such as one of an authenticator app or a recovery code: digits of any script
// are digits, letters are in lower case, and spaces, dashes and invisible characters do not count.
func Code(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) || isDash(r) {
			return -1
		}
		return unicode.ToLower(digit(r))
	}, norm.NFKC.String(text))
}

// Phone returns a phone number with ASCII digits, spaces and hyphens, and without invisible characters.
func Phone(text string) string {
	return Pasted(strings.Map(func(r rune) rune {
		switch {
		case isDash(r):
			return '-'
		case r == '\u200c' || r == '\u200d':
			return -1
		}
		return digit(r)
	}, width.Fold.String(text)))
}

// Digits returns a text with ASCII digits in place of those of any script.
func Digits(text string) string { return strings.Map(digit, text) }

// isDash reports whether people and programs type the character for a hyphen: also the minus sign, and the long vowel
// mark of Japanese keyboards.
func isDash(r rune) bool {
	return unicode.Is(unicode.Pd, r) || r == '\u2212' || r == '\u2043' || r == '\u30fc'
}

// digit returns the ASCII digit of a decimal digit of any script, or the character. Unicode assigns the digits of a
// script ten consecutive code points, from zero (The Unicode Standard, section 4.6).
func digit(r rune) rune {
	if r <= unicode.MaxASCII || !unicode.Is(unicode.Nd, r) {
		return r
	}
	first := r // of the scripts whose digits are consecutive
	for unicode.Is(unicode.Nd, first-1) {
		first--
	}
	return '0' + (r-first)%10
}
