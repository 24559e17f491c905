package app_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/net/web"
)

// fits reports whether a page has a status and a text with these words. The word of a redirect is its location, or the
// beginning of it if the word ends in a question mark.
func fits(page *browsertest.Page, status int, words []string) bool {
	return page.Status == status && !slices.ContainsFunc(words, func(word string) bool {
		if status != 303 {
			return !page.HasText(word)
		}
		return page.Location() != word && !(strings.HasSuffix(word, "?") && strings.HasPrefix(page.Location(), word))
	})
}

// wants requires that a page fits.
func (s *site) wants(what string, page *browsertest.Page, status int, words ...string) {
	s.t.Helper()
	if !fits(page, status, words) {
		s.t.Errorf("%s: want %d %q, %s", what, status, words, s.got(page))
	}
}

// needs ends the test if a page does not fit.
func (s *site) needs(what string, page *browsertest.Page, status int, words ...string) {
	s.t.Helper()
	if !fits(page, status, words) {
		s.t.Fatalf("%s: want %d %q, %s", what, status, words, s.got(page))
	}
}

// lacks requires that a page has none of these words.
func (s *site) lacks(what string, page *browsertest.Page, words ...string) {
	s.t.Helper()
	for _, word := range words {
		if page.HasText(word) {
			s.t.Errorf("%s: %q is on the page, %s", what, word, s.got(page))
		}
	}
}

// got describes a page, with what the service logged about its request and how to run the test again.
func (s *site) got(page *browsertest.Page) string {
	var logged []string
	for line := range strings.Lines(s.log.String()) {
		if id := page.Header.Get(web.RequestIDHeader); id != "" && strings.Contains(line, id) {
			logged = append(logged, line)
		}
	}
	name, _, _ := strings.Cut(s.t.Name(), "/")
	return fmt.Sprintf("got %d to %q: %s\nthe log of the request:\n%s(go test ./internal/app -run '^%s$')",
		page.Status, page.Location(), page.Text(), strings.Join(logged, ""), name)
}

// equal requires that a value is the expected one.
func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// contains requires that a text contains all words.
func contains(t testing.TB, what, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if word == "" || !strings.Contains(text, word) {
			t.Errorf("%s does not contain %q:\n%s", what, word, text)
		}
	}
}

// omits requires that a text, which may be secret, contains none of these words, which may be secret too.
func omits(t testing.TB, what, text string, words ...string) {
	t.Helper()
	for i, word := range words {
		if strings.Contains(text, word) {
			t.Errorf("%s contains what it must not (number %d)", what, i)
		}
	}
}

// atOnce sends n requests at the same time, and returns how many responses have each status.
func atOnce(n int, send func(i int) *browsertest.Page) map[int]int {
	pages := make([]*browsertest.Page, n)
	var all sync.WaitGroup
	for i := range pages {
		all.Go(func() { pages[i] = send(i) })
	}
	all.Wait()
	statuses := map[int]int{}
	for _, page := range pages {
		statuses[page.Status]++
	}
	return statuses
}

// sameStatuses requires that responses have these statuses, as often.
func sameStatuses(t testing.TB, what string, got, want map[int]int) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: statuses %v, want %v", what, got, want)
	}
}
