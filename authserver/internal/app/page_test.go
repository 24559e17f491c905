package app_test

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

// wants requires the status of a page, and words of its text or, of a redirect, its location: the beginning of it if
// the word ends in a question mark.
func (s *site) wants(what string, page *browsertest.Page, status int, words ...string) {
	s.t.Helper()
	if page = page.As(what); status != http.StatusSeeOther {
		page.Wants(status, words...)
		return
	}
	page.Wants(status)
	for _, word := range words {
		if !strings.HasSuffix(word, "?") || !strings.HasPrefix(page.Location(), word) {
			page.LeadsTo(word)
		}
	}
}

// needs ends the test if a page has another status.
func (s *site) needs(what string, page *browsertest.Page, status int, words ...string) {
	s.t.Helper()
	if s.wants(what, page, status, words...); page.Status != status {
		s.t.FailNow()
	}
}

// refuses requires a page that signs nobody in at the browser.
func (s *site) refuses(b *browsertest.Browser, what string, page *browsertest.Page, status int, words ...string) {
	s.t.Helper()
	s.wants(what, page, status, words...)
	equal(s.t, what+": signed in", inside(b), false)
}

// lacks requires that a page has none of these words.
func (s *site) lacks(what string, page *browsertest.Page, words ...string) {
	s.t.Helper()
	page.As(what).Lacks(words...)
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
