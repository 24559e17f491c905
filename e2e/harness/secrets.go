package harness

import (
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/almonerhq/almoner/deploy/local/stack"
)

// The formats of secrets: the product's own credentials (contract, section 2), JWTs, and the ticket of the consent
// page.
var (
	credentials = regexp.MustCompile(`alm_(?:pat|cs|ac|rt)_[A-Za-z0-9_-]{16,}`)
	jwts        = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+`)
	tickets     = regexp.MustCompile(`name="ticket" value="([^"]+)"`)
	hooks       = regexp.MustCompile(`whsec_[A-Za-z0-9+/]{32,}`)
	public      = regexp.MustCompile(`(?:code_challenge=|code_challenge":"|/public/forms/)([A-Za-z0-9_-]{30,})`)
	upstream    = regexp.MustCompile(`[?&](?:state|nonce)=([A-Za-z0-9_-]{20,})`)
)

// formats are the formats of the secrets in any text, by kind.
var formats = map[string]*regexp.Regexp{
	"access token":   jwts,
	"webhook secret": hooks,
	"consent ticket": tickets,
	"code verifier":  regexp.MustCompile(`code_verifier(?:=|":")([A-Za-z0-9._~-]{43,128})`),
	"status token":   regexp.MustCompile(`/submissions/[0-9a-f-]{36}\?token=([A-Za-z0-9_-]{40,})`),
}

// Redact replaces every secret in the text, so that a failure message can contain it.
func Redact(text string) string {
	text = credentials.ReplaceAllString(text, "[credential]")
	text = jwts.ReplaceAllString(text, "[access token]")
	text = hooks.ReplaceAllString(text, "[webhook secret]")
	return tickets.ReplaceAllString(text, `name="ticket" value="[ticket]"`)
}

// Secrets are all secrets that actors have received or sent, recorded in order to search for them where they must not
// be. It stores the end of each secret, because the start is not always random: all JWTs begin alike, and a token
// begins with the id of its grant, which is not secret. Secrets is safe for concurrent use, and its zero value is
// empty.
type Secrets struct {
	mu     sync.Mutex
	ends   map[fragment]string // → kind of the secret
	public map[fragment]bool   // challenges and embed keys, which attacks present as secrets
}

// A fragment is the part of a secret that is searched for: a partial secret in a log is a leak too.
type fragment [14]byte

// Add records one secret. It ignores short ones and those that repeat one character, as attacks do: such text occurs
// by chance.
func (s *Secrets) Add(kind, value string) {
	if len(value) < len(fragment{}) || strings.Count(value, value[:1]) == len(value) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		s.ends = map[fragment]string{}
	}
	s.ends[endOf(value)] = kind
}

func endOf(value string) fragment { return fragment([]byte(value)[len(value)-len(fragment{}):]) }

// AddAll records every secret in the text.
func (s *Secrets) AddAll(text string) {
	for _, found := range credentials.FindAllString(text, -1) {
		s.Add("credential "+found[:len("alm_xx")], found)
	}
	for kind, format := range formats {
		s.addMatches(kind, format, text)
	}
	if strings.Contains(text, "nonce=") { // an address at which this service signs people in
		s.addMatches("login state", upstream, text)
	}
	for _, found := range public.FindAllStringSubmatch(text, -1) {
		s.mu.Lock()
		if s.public == nil {
			s.public = map[fragment]bool{}
		}
		s.public[endOf(found[1])] = true
		s.mu.Unlock()
	}
}

// addMatches records the last group of each match, or the match if the format has no group.
func (s *Secrets) addMatches(kind string, format *regexp.Regexp, text string) {
	for _, found := range format.FindAllStringSubmatch(text, -1) {
		s.Add(kind, found[len(found)-1])
	}
}

// AddSetting records the secrets in the value of a setting of the services.
func (s *Secrets) AddSetting(name, value string) {
	switch name {
	case "ALMONER_KEYS":
		for key := range strings.SplitSeq(value, ",") {
			s.Add("key of a service", key)
		}
	case "ALMONER_DATABASE_URL", "ALMONER_REFRESH_DATABASE_URL", "ALMONER_REDIS_URL":
		s.noteStore(value)
	case "ALMONER_UPSTREAM_CLIENT_SECRET":
		s.Add("secret of ours elsewhere", value)
	}
}

// noteStore records the passwords in the URL of a store. A URL for Sentinels has two. Text that is not a URL is
// ignored.
func (s *Secrets) noteStore(text string) {
	address, err := url.Parse(text)
	if err != nil {
		return
	}
	const kind = "password of a store"
	if password, is := address.User.Password(); is {
		s.Add(kind, password)
	}
	s.Add(kind, address.Query().Get("password"))
}

// noteStack records the secrets in the settings of a stack's services and the passwords of its stores.
func (s *Secrets) noteStack(of *stack.Stack) {
	s.noteStore(of.DatabaseURL)
	if of.Postgres != nil {
		s.noteStore(of.Postgres.URL)
	}
	for _, service := range slices.Concat(of.Authservers, of.Resources) {
		for _, name := range []string{
			"ALMONER_KEYS",
			"ALMONER_DATABASE_URL",
			"ALMONER_REFRESH_DATABASE_URL",
			"ALMONER_REDIS_URL",
			"ALMONER_UPSTREAM_CLIENT_SECRET",
		} {
			s.AddSetting(name, service.Setting(name))
		}
	}
}

// Count returns the number of secrets of each kind.
func (s *Secrets) Count() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for _, kind := range s.ends {
		counts[kind]++
	}
	return counts
}

// FoundIn returns the kinds of the secrets that occur in the text, with their number of occurrences.
func (s *Secrets) FoundIn(text []byte) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]int{}
	for i := 0; i+len(fragment{}) <= len(text); i++ {
		if kind, ok := s.ends[fragment(text[i:])]; ok && !s.public[fragment(text[i:])] {
			found[kind]++
		}
	}
	return found
}

// ReadLogs returns the content of all logs in a directory.
func ReadLogs(dir string) ([]byte, error) { return readFiles(filepath.Join(dir, "*.log")) }
