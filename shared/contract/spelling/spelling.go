// Package spelling decides when two texts that people type are the same address, password, code or phone number
// (contract, section 5). Keyboards, browsers and address books send one text in several spellings: Unicode has more
// than one form of most letters with marks, Chromium sends the domain of an address in Punycode, and copied text has
// invisible characters.
//
//	Email, Claimed, Key, Spellings, OnWire: e-mail addresses; Search, Fold, Plain
//	Password; Pasted, Code, Phone: text that people paste
//
// Every entrance of both services uses it: pages, API, public forms, erasure, upstream OpenID Connect, the operator's
// commands, and the keys of limits. The test in e2e/entrances lists the entrances and fails on a new one. Which names
// people may have is decided in displayname.
package spelling

import (
	"net/mail"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/width"

	"github.com/almonerhq/almoner/shared/contract/displayname"
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

// maxEmail is the greatest length of an address on the wire, in bytes (RFC 5321, section 4.5.3.1.3).
const maxEmail = 254

// domains maps the domain of an address as browsers do (UTS 46, without transitional processing).
var domains = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.VerifyDNSLength(true))

// Email returns the canonical spelling of an address that a person typed or pasted, in which addresses are stored,
// compared and shown: lower case, Unicode form C, and the domain in Unicode, or in Punycode if it could be taken for
// another domain. Both are the same domain. It returns false for text that is no bare address, and for a local part
// with invisible characters that Pasted does not remove, because two addresses could look the same.
func Email(text string) (string, bool) {
	local, domain, ok := parts(Pasted(text))
	if !ok || !utf8.ValidString(text) {
		return "", false
	}
	ascii, shown, ok := domainOf(domain)
	if !ok || len(local)+1+len(ascii) > maxEmail {
		return "", false
	}
	if deceptive(shown) {
		shown = ascii
	}
	return local + "@" + shown, true
}

// deceptive reports whether a domain in Unicode could be taken for another one: a label mixes scripts or has a joiner,
// which most fonts do not show.
func deceptive(domain string) bool {
	return strings.ContainsFunc(domain, displayname.Hidden) ||
		slices.ContainsFunc(strings.Split(domain, "."), displayname.MixesScripts)
}

// Claimed is Email for an address that a program states about a person, such as the email claim of an ID token. A
// program pastes nothing: an address with invisible characters may be another mailbox than the one without.
func Claimed(text string) (string, bool) {
	if Pasted(text) != text {
		return "", false
	}
	return Email(text)
}

// HasInvisible reports whether a stored address has invisible characters, as earlier releases allowed. Without them, it
// may be another mailbox.
func HasInvisible(email string) bool {
	return Pasted(email) != email || strings.ContainsFunc(email, displayname.Hidden)
}

// Key returns the text by which limits and cookies recognise an address in any spelling. It accepts any text.
func Key(text string) string {
	if email, ok := Email(text); ok {
		return email
	}
	return asTyped(Pasted(text))
}

// Spellings returns the texts with which an address may be stored, for a lookup in which earlier ones win: as given,
// canonical, and as releases before this package stored what browsers and keyboards send. `authserver migrate
// --finish` rewrites the latter. It accepts any text.
func Spellings(text string) []string {
	all := []string{asTyped(strings.TrimSpace(text)), Key(text)}
	if email, ok := Email(text); ok {
		ascii, shown := bothDomains(email)
		all = append(all, ascii, norm.NFD.String(ascii), shown, norm.NFD.String(shown))
	}
	var found []string
	for _, one := range all {
		if !slices.Contains(found, one) {
			found = append(found, one)
		}
	}
	return found
}

// OnWire returns an address with its domain in ASCII, as mail servers expect it. It accepts any text.
func OnWire(email string) string {
	ascii, _ := bothDomains(email)
	return ascii
}

// bothDomains returns an address with its domain in ASCII and in Unicode, even if it could be taken for another domain.
func bothDomains(email string) (inASCII, inUnicode string) {
	at := strings.LastIndexByte(email, '@')
	ascii, shown, ok := domainOf(email[at+1:])
	if at < 0 || !ok {
		return email, email
	}
	return email[:at+1] + ascii, email[:at+1] + shown
}

// Search returns the words that a person searches for, like a text that Fold has changed.
func Search(text string) string {
	if email, ok := Email(text); ok {
		return email
	}
	return Fold(Pasted(text))
}

// parts returns the canonical local part and the domain of a bare address: no name, comment, quotes or route.
func parts(text string) (local, domain string, ok bool) {
	parsed, err := mail.ParseAddress(text)
	if err != nil || parsed.Address != text || strings.ContainsAny(text, " \t\r\n\"()<>[]") ||
		strings.ContainsFunc(text, unicode.IsControl) {
		return "", "", false
	}
	at := strings.LastIndexByte(text, '@')
	if strings.ContainsAny(text[:at], becomeASCII) || strings.ContainsFunc(text[:at], displayname.Hidden) {
		return "", "", false
	}
	return Fold(text[:at]), text[at+1:], true
}

// becomeASCII are the characters that normalization turns into ASCII: the signs of kelvin, of the Greek question mark
// and of the Greek varia. With them, an address would become that of another mailbox.
const becomeASCII = "\u212a\u037e\u1fef"

// Fold returns a text in lower case and Unicode form C. No letter outside of ASCII becomes one of ASCII.
func Fold(text string) string {
	if isASCII(text) {
		return strings.ToLower(text)
	}
	folded := cases.Lower(language.Und, cases.HandleFinalSigma(false)).String(norm.NFC.String(text))
	return norm.NFC.String(folded)
}

// withoutMarks has the letters whose marks Unicode does not separate.
var withoutMarks = strings.NewReplacer("ß", "ss", "ł", "l", "ø", "o", "đ", "d", "ð", "d", "þ", "th", "æ", "ae",
	"œ", "oe", "ı", "i", "ħ", "h")

// Plain returns a text as lists of people are searched and sorted: like Fold, and without marks, so that e finds é, l
// finds ł and ss finds ß. It decides nothing about addresses.
func Plain(text string) string {
	if isASCII(text) {
		return strings.ToLower(text)
	}
	return withoutMarks.Replace(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(Fold(text))))
}

// asTyped returns a text in lower case, not normalized. No letter outside of ASCII becomes one of ASCII.
func asTyped(text string) string {
	return strings.Map(func(r rune) rune {
		if small := unicode.ToLower(r); r <= unicode.MaxASCII || small > unicode.MaxASCII {
			return small
		}
		return r
	}, text)
}

// domainOf returns a domain in ASCII and in Unicode.
func domainOf(domain string) (ascii, shown string, ok bool) {
	if isASCII(domain) && !strings.Contains(strings.ToLower(domain), "xn--") {
		domain = strings.ToLower(domain)
		return domain, domain, true
	}
	ascii, err := domains.ToASCII(domain)
	if err != nil {
		return "", "", false
	}
	shown, err = domains.ToUnicode(ascii)
	if back, backErr := domains.ToASCII(shown); err != nil || backErr != nil || back != ascii {
		return ascii, ascii, true // two domains never share one spelling
	}
	return ascii, shown, true
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII })
}
