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

// shortest is how long a secret is at least to be looked for: shorter ones are found anywhere by chance.
const shortest = 4

// The spellings of what must not be seen wherever it comes from: credentials of this product, JWTs, and what follows
// Bearer or Basic.
var spelled = []*regexp.Regexp{
	regexp.MustCompile(`alm_(?:pat|cs|ac|rt)_[A-Za-z0-9_.-]+`),
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`),
	regexp.MustCompile(`(?i)\b(?:bearer|basic) +[A-Za-z0-9._~+/-]{20,}=*`),
}

// Secrets is what must not be shown. Its zero value knows none yet; it is safe for concurrent use.
type Secrets struct {
	mu     sync.Mutex
	values []string
}

// Add keeps a secret, as it is and as it stands in a form.
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
	) // one may be part of another
}

// Show makes text fit to be shown: without secrets, on one line, without characters that a terminal would obey, and at
// most so many characters long.
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
	text = s.hide(strings.Join(strings.Fields(text), " ")) // again: something may have stood between its characters
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

// Address shows an address without the values of its query, where codes and states travel.
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
