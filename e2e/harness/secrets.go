package harness

import (
	"path/filepath"
	"regexp"
	"sync"
)

// The spellings of what must not be seen: the product's own credentials (contract, section 2), JWTs, and the ticket of the
// consent page.
var (
	credentials = regexp.MustCompile(`alm_(?:pat|cs|ac|rt)_[A-Za-z0-9_-]{16,}`)
	jwts        = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+`)
	tickets     = regexp.MustCompile(`name="ticket" value="([^"]+)"`)
)

// Redact takes every secret out of text, so that a failing test may print it.
func Redact(text string) string {
	text = credentials.ReplaceAllString(text, "[credential]")
	text = jwts.ReplaceAllString(text, "[access token]")
	return tickets.ReplaceAllString(text, `name="ticket" value="[ticket]"`)
}

// Secrets are all secrets that actors have seen or typed, kept to look for them where they must not be. Of each its end is kept,
// where all of them are random: a JWT begins like every other, and a token of one grant begins with the id of the grant, which is
// no secret. It is safe for concurrent use, and its zero value is empty.
type Secrets struct {
	mu   sync.Mutex
	ends map[fragment]string // → what it is the end of
}

// A fragment is how much of a secret is looked for: a part of it in a log is a leak too.
type fragment [14]byte

// Note keeps one secret. Short ones are left out: they would be found anywhere by chance.
func (s *Secrets) Note(kind, value string) {
	if len(value) < len(fragment{}) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		s.ends = map[fragment]string{}
	}
	s.ends[fragment([]byte(value)[len(value)-len(fragment{}):])] = kind
}

// NoteAll keeps every secret that is spelled out in text.
func (s *Secrets) NoteAll(text string) {
	for _, found := range credentials.FindAllString(text, -1) {
		s.Note("credential "+found[:len("alm_xx")], found)
	}
	for _, found := range jwts.FindAllString(text, -1) {
		s.Note("access token", found)
	}
	for _, found := range tickets.FindAllStringSubmatch(text, -1) {
		s.Note("consent ticket", found[1])
	}
}

// Count says how many secrets of each kind are kept.
func (s *Secrets) Count() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for _, kind := range s.ends {
		counts[kind]++
	}
	return counts
}

// FoundIn returns the kinds of the secrets of which some part is in text, and how often.
func (s *Secrets) FoundIn(text []byte) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]int{}
	for i := 0; i+len(fragment{}) <= len(text); i++ {
		if kind, ok := s.ends[fragment(text[i:])]; ok {
			found[kind]++
		}
	}
	return found
}

// ReadLogs returns the content of every log in a directory.
func ReadLogs(dir string) ([]byte, error) { return readFiles(filepath.Join(dir, "*.log")) }
