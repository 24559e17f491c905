package doctor

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const (
	redacted  = "[redacted]"
	minSecret = 4 // characters of a secret that is redacted: shorter ones would match by chance
)

// patterns match secrets that are always redacted: credentials of this product, JWTs, and the values of Bearer and
// Basic.
var patterns = []*regexp.Regexp{
	regexp.MustCompile(`alm_(?:pat|cs|ac|rt)_[A-Za-z0-9_.-]+`),
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`),
	regexp.MustCompile(`(?i)\b(?:bearer|basic) +[A-Za-z0-9._~+/-]{20,}=*`),
}

// secrets are the known secrets, longest first: one may be part of another.
type secrets []string

// add registers a secret, in plain and in URL-encoded form.
func (s *secrets) add(secret credential.Secret) {
	value := secret.Reveal()
	if len(value) < minSecret {
		return
	}
	for _, form := range []string{value, url.QueryEscape(value), url.PathEscape(value)} {
		if !slices.Contains(*s, form) {
			*s = append(*s, form)
		}
	}
	slices.SortFunc(*s, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
}

// show makes text safe to show: without secrets, on one line, without control characters, and with up to limit
// characters.
func (s secrets) show(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s.redact(text), ""))
	text = s.redact(strings.Join(strings.Fields(text), " ")) // again: removed characters may have split a secret
	if runes := []rune(text); len(runes) > limit {
		text = string(runes[:limit]) + "…"
	}
	return text
}

func (s secrets) redact(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	for _, pattern := range patterns {
		text = pattern.ReplaceAllString(text, redacted)
	}
	return text
}

// address returns an address without the values of its query, which may be codes and states.
func (s secrets) address(address string) string {
	before, query, has := strings.Cut(address, "?")
	if !has {
		return s.show(before, 300)
	}
	var names []string
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name+"=…")
	}
	return s.show(before+"?"+strings.Join(names, "&"), 300)
}
