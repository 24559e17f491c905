package wire

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/almonerhq/almoner/shared/credential"
)

const hidden = "[redacted]"

// shortest is the minimum length of a secret that is filtered: shorter ones would match by chance.
const shortest = 4

// Patterns of secrets that are always hidden: credentials of this product, JWTs, and the values of Bearer and
// Basic.
var spelled = []*regexp.Regexp{
	regexp.MustCompile(`alm_(?:pat|cs|ac|rt)_[A-Za-z0-9_.-]+`),
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`),
	regexp.MustCompile(`(?i)\b(?:bearer|basic) +[A-Za-z0-9._~+/-]{20,}=*`),
}

// Secrets filters known secrets from text. The zero value knows none. It is safe for concurrent use.
type Secrets struct {
	mu     sync.Mutex
	values []string
}

// Add registers a secret, in plain and in URL-encoded form.
func (s *Secrets) Add(secret credential.Secret) {
	value := secret.Reveal()
	if len(value) < shortest {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range []string{value, url.QueryEscape(value), url.PathEscape(value)} {
		if !slices.Contains(s.values, one) {
			s.values = append(s.values, one)
		}
	}
	slices.SortFunc(
		s.values,
		func(a, b string) int { return cmp.Compare(len(b), len(a)) },
	) // a secret may be part of another
}

// Show makes text safe to show: without secrets, on one line, without control characters, and with up to most
// characters.
func (s *Secrets) Show(text string, most int) string {
	text = s.hide(text)
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	text = s.hide(strings.Join(strings.Fields(text), " ")) // again: removed characters may have split a secret
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}

func (s *Secrets) hide(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.values {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	for _, spelling := range spelled {
		text = spelling.ReplaceAllString(text, hidden)
	}
	return text
}

// Address returns an address without the values of its query, which may be codes and states.
func (s *Secrets) Address(address string) string {
	before, query, has := strings.Cut(address, "?")
	if !has {
		return s.Show(before, 300)
	}
	var names []string
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name+"=…")
	}
	return s.Show(before+"?"+strings.Join(names, "&"), 300)
}
