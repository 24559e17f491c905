package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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

// searchWithin is enough to read the stores of a stack after an hour of load.
const searchWithin = 10 * time.Minute

// LookForLeaks sweeps every stack that runs until the process ends, prints what it finds, and returns the exit code.
// TestMain calls it last.
func LookForLeaks() (code int) {
	for s := range records.Range {
		for _, complaint := range sweep(s.(*stack.Stack), true) {
			fmt.Println("FAIL:", complaint)
			code = 1
		}
	}
	return code
}

// sweep searches everything that the stack has written for every secret that was used in it: the logs of services,
// gateway and stores, metrics, traces, all rows of Postgres, and all commands that Redis received (its append-only
// file, which includes expired keys). If whole is set, each of these must be present; otherwise a stopped store or
// service is left out. It also searches the logs for the cause of every 5xx response.
func sweep(s *stack.Stack, whole bool) (complaints []string) {
	recorded, entered := recordOf(s), false
	for range recorded.secrets.Range {
		entered = true
		break
	}
	if !entered {
		return nil
	}
	texts, err := written(s, whole)
	if err != nil {
		complaints = append(complaints, "the output of a stack cannot be read: "+err.Error())
	}
	for secrets := range recorded.secrets.Range {
		for _, where := range slices.Sorted(maps.Keys(texts)) {
			if found := secrets.(*Secrets).FoundIn(texts[where]); len(found) > 0 {
				complaints = append(complaints, fmt.Sprintf("secrets of this run are in %s: %v", where, found))
			}
		}
	}
	return append(complaints, recorded.unexplained(texts[servicesLogs])...)
}

const servicesLogs = "the services' logs"

// written reads everything, by location. The error lists the locations that cannot be read.
func written(s *stack.Stack, whole bool) (map[string][]byte, error) {
	gone := func(done <-chan struct{}) bool {
		select {
		case <-done:
			return !whole
		default:
			return false
		}
	}
	texts, faults := map[string][]byte{}, []error{}
	add := func(where string, content []byte, err error) {
		if texts[where] = append(texts[where], content...); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", where, err))
		}
	}
	files := func(where string, path ...string) {
		content, err := readFiles(filepath.Join(path...))
		add(where, content, err)
	}
	files(servicesLogs, s.LogDir(), "*.log")
	const storesLogs, appendOnly = "the stores' logs", "appendonlydir"
	options := recordOf(s).options
	if s.Postgres != nil {
		files(storesLogs, s.StoreDir(), "postgres", "*.log")
	}
	if several := options.RedisDir; several != "" {
		files(storesLogs, several, "*", "*.log")
		files("Redis", several, "*", appendOnly, "*")
	} else {
		files(storesLogs, s.Redis.Dir, "*.log")
		if !gone(s.Redis.Done()) {
			files("Redis", s.Redis.Dir, appendOnly, "*")
		}
	}
	if options.Traced {
		files("the traces", filepath.Dir(s.LogDir()), spansFile)
	}
	ctx, cancel := context.WithTimeout(context.Background(), searchWithin)
	defer cancel()
	metrics, err := scrape(slices.DeleteFunc(metered(s), func(service *stack.Service) bool {
		return gone(service.Done()) ||
			options.EarlierBinaries != "" && service != s.Authservers[0] &&
				service != s.Resourceapi // may have no metrics
	}))
	add("the metrics", []byte(metrics), err)
	if s.Postgres == nil || !gone(s.Postgres.Done()) {
		rows, err := EveryRow(ctx, s.DatabaseURL)
		add("Postgres", rows, err)
	}
	return texts, errors.Join(faults...)
}

// readFiles reads all files that match a pattern; there must be at least one. It retries because Redis may replace a
// file meanwhile.
func readFiles(pattern string) (all []byte, err error) {
	for range 5 {
		if all, err = readOnce(pattern); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return all, err
}

func readOnce(pattern string) ([]byte, error) {
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		return nil, errors.Join(err, errors.New("no file matches"))
	}
	var all []byte
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(append(all, content...), '\n')
	}
	return all, nil
}

// EveryRow returns every row of every table as text, with bytes as they are.
func EveryRow(ctx context.Context, database string) ([]byte, error) {
	owner, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	defer func() { _ = owner.Close(ctx) }()
	if _, err := owner.Exec(ctx, `set bytea_output = 'escape'`); err != nil {
		return nil, err
	}
	rows, err := owner.Query(ctx, `select format('%I.%I', table_schema, table_name) from information_schema.tables
		where table_schema not in ('pg_catalog', 'information_schema') and table_type = 'BASE TABLE'`)
	if err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	var all strings.Builder
	for _, table := range tables {
		rows, err := owner.Query(ctx, `select r::text from `+table+` r`)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", table, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", table, err)
		}
		for _, line := range lines {
			all.WriteString(line + "\n")
		}
	}
	return []byte(all.String()), nil
}

// Metrics reads the metrics of every service of a stack, as Prometheus would.
func Metrics(t testing.TB, s *stack.Stack) string {
	t.Helper()
	text, err := scrape(metered(s))
	must(t, err)
	return text
}

func metered(s *stack.Stack) []*stack.Service {
	return append(slices.Clone(s.Authservers), s.Resourceapi)
}

func scrape(services []*stack.Service) (string, error) {
	var all strings.Builder
	for _, service := range services {
		response, err := (&http.Client{Timeout: timeout}).Get(service.Metrics)
		if err != nil {
			return all.String(), fmt.Errorf("the metrics of %s: %w", service.Name, err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		all.Write(text)
		if err != nil || response.StatusCode != http.StatusOK {
			return all.String(), fmt.Errorf("the metrics of %s: %d %w", service.Name, response.StatusCode, err)
		}
	}
	return all.String(), nil
}
