package app_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/net/web"
)

func TestMain(m *testing.M) {
	code := m.Run()
	stopChromium()
	os.Exit(max(code, searchLogs()))
}

// logs has the log of each service of this process.
var logs sync.Map

// searchLogs returns the exit status 1 if a service has logged a secret.
func searchLogs() (status int) {
	secrets := map[string]string{
		"a password":                browsertest.Password,
		"a new password":            newPassword,
		"the provider's secret":     clientSecret,
		"the link of an invitation": "alm_inv_",
		"a token":                   "alm_pat_",
	}
	for log := range logs.Range {
		text := log.(*testkit.Log).String()
		for name, secret := range secrets {
			if strings.Contains(text, secret) {
				fmt.Printf("FAIL: %s is in the log of a service\n", name)
				status = 1
			}
		}
	}
	return status
}

// A site is what a test sees of authserver on localhost over real stores: a workspace, the users that it creates, and
// browsers at an address of its own.
type site struct {
	*service
	t       testing.TB
	fixture *fixture.Fixture
	address string
	people  *[]uuid.UUID
}

// A service is a running authserver.
type service struct {
	app.Parts
	url      string
	log      *testkit.Log
	box      *mailbox.Mailbox // of all users, if the service sends mail
	accounts *accounts        // at the provider, if the service is shared
}

// The services that the tests of this package share. They offer passkeys and the provider's accounts.
var (
	withoutMail = testkit.Once(func(t testing.TB) *site { return withProvider(t, nil) })
	withMail    = testkit.Once(func(t testing.TB) *site { return withProvider(t, newMailbox(t)) })
	bare        = testkit.Once(func(t testing.TB) *site { return own(t, plain) })
)

func withProvider(t testing.TB, box *mailbox.Mailbox) *site {
	at := serveAccounts(t)
	s := start(t, box, at.of)
	s.accounts = at
	return s
}

// shared returns a workspace of a service that sends no mail, so its pages show the links of invitations. Like those
// below, it runs the test beside the others.
func shared(t testing.TB) *site {
	t.Helper()
	browsertest.Parallel(t)
	return withoutMail(t).forTest(t)
}

// mailing returns a workspace of a service that sends mail.
func mailing(t testing.TB) *site { t.Helper(); browsertest.Parallel(t); return withMail(t).forTest(t) }

// basic returns a workspace of a service without mail, passkeys and a provider.
func basic(t testing.TB) *site { t.Helper(); browsertest.Parallel(t); return bare(t).forTest(t) }

func (s *site) forTest(t testing.TB) *site {
	t.Helper()
	return &site{s.service, t, s.fixture.For(t), apitest.NewAddress(), &[]uuid.UUID{}}
}

// A change changes the configuration of a service.
type change = func(*app.Config)

// plain is a configuration without ways to sign in besides passwords.
func plain(c *app.Config) { c.Passkeys = false }

func newMailbox(t testing.TB) *mailbox.Mailbox {
	t.Helper()
	box, err := mailbox.Start()
	testkit.Must(t, err)
	t.Cleanup(box.Close)
	return box
}

// own starts a service of this test alone, which sends no mail.
func own(t testing.TB, changes ...change) *site {
	t.Helper()
	browsertest.Parallel(t)
	return start(t, nil, changes...)
}

// ownMailing starts a service of this test alone, which sends mail.
func ownMailing(t testing.TB, changes ...change) *site {
	t.Helper()
	browsertest.Parallel(t)
	return start(t, newMailbox(t), changes...)
}

func start(t testing.TB, box *mailbox.Mailbox, changes ...change) *site {
	t.Helper()
	serves := &service{log: &testkit.Log{}, box: box}
	logs.Store(serves.log, nil)
	s := &site{serves, t, fixture.New(t), apitest.NewAddress(), &[]uuid.UUID{}}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	port, err := localstore.FreePort()
	s.must(err)
	s.url = fmt.Sprint("http://localhost:", port)
	config := app.Config{
		Listen:         fmt.Sprint("127.0.0.1:", port),
		BaseURL:        apitest.Issuer,
		AppURL:         s.url,
		DatabaseURL:    credential.Secret(s.fixture.Database.Authserver),
		RedisURL:       credential.Secret(testkit.NewRedis(t).URL),
		Keys:           credential.Secret(base64.RawURLEncoding.EncodeToString(key)),
		UpstreamName:   "Riverside",
		TrustedProxies: "127.0.0.1",
		StoreWait:      testkit.StoreWait,
		Passkeys:       true,
	}
	if box != nil {
		config.SMTPURL, config.MailFrom = credential.Secret(box.URL()), "Almoner <almoner@example.org>"
	}
	for _, change := range changes {
		change(&config)
	}
	if mistakes := config.Check(); len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	made, err := app.New(t.Context(), config, web.NewLogger(s.log, slog.LevelInfo), func(o *app.Options) {
		o.Cost, o.MailPoll = session.LowestCost(), 100*time.Millisecond
	})
	s.must(err)
	s.Parts = made.Parts
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- made.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	s.awaitAlive()
	return s
}

func (s *site) awaitAlive() {
	s.t.Helper()
	await.NoError(s.t, func() error { // without its stores, a process listens after three seconds
		response, err := http.Get(s.url + "/healthz")
		if err == nil {
			err = response.Body.Close()
		}
		return err
	})
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) browser() *browsertest.Browser {
	b := browsertest.At(s.t, s.url)
	b.Log = s.log
	b.Headers.Set("X-Forwarded-For", s.address)
	return b
}

// person creates a user with a password, whose address no other test has.
func (s *site) person() browsertest.Person {
	s.t.Helper()
	return s.personAt("person-" + uuid.NewString()[:8] + "@example.org")
}

// personAt creates a user with a password and this address.
func (s *site) personAt(email string) browsertest.Person {
	s.t.Helper()
	who := browsertest.Person{ID: s.fixture.User(email), Email: email}
	hash, err := session.HashPassword(browsertest.Password, session.LowestCost())
	s.must(err)
	s.fixture.Exec(`update account.users set password_hash = $2 where id = $1`, who.ID, hash.Reveal())
	*s.people = append(*s.people, who.ID)
	return who
}

// member creates a user with a password who has these permissions in the workspace.
func (s *site) member(permissions ...perm.Permission) browsertest.Person {
	s.t.Helper()
	who := s.person()
	s.fixture.Join(s.fixture.WorkspaceID, who.ID, permissions...)
	return who
}

func newAddress() string { return "new-" + uuid.NewString()[:8] + "@example.net" }

func (s *site) signedIn(who browsertest.Person) *browsertest.Browser {
	s.t.Helper()
	b := s.browser()
	b.SignIn(who)
	return b
}

// tries returns the status of a sign-in with a password.
func (s *site) tries(email, password string) int {
	s.t.Helper()
	return s.browser().Get("/login").Send("/login", browsertest.Fields{"email": email, "password": password}).Status
}

// usedSecondFactor records that a user used a second factor at every sign-in.
func (s *site) usedSecondFactor(who browsertest.Person) {
	s.t.Helper()
	s.fixture.Exec(`update account.sign_ins set second_factor_at = now() where user_id = $1`, who.ID)
}

func (s *site) removePassword(who browsertest.Person) {
	s.t.Helper()
	s.fixture.Exec(`update account.users set password_hash = null where id = $1`, who.ID)
}

// read returns the only value of a query, as the owner of the database.
func read[T any](s *site, query string, args ...any) (value T) {
	s.t.Helper()
	s.must(s.fixture.Owner.QueryRow(s.t.Context(), query, args...).Scan(&value))
	return value
}

// rows requires that a table has n rows with the condition.
func (s *site) rows(n int, table, condition string, args ...any) {
	s.t.Helper()
	query := "select count(*) from account." + table + " where " + condition
	if got := read[int](s, query, args...); got != n {
		s.t.Errorf("%s where %s %v: %d rows, want %d", table, condition, args, got, n)
	}
}

// recorded requires that the audit log has n events of an action that concern the user.
func (s *site) recorded(n int, action audit.Action, user uuid.UUID) {
	s.t.Helper()
	s.rows(n, "audit_events", "user_id = $1 and action = $2", user, action)
}

// stale makes the last authentication of every session of the test's users too old.
func (s *site) stale() {
	s.t.Helper()
	signIns := read[[]string](s, `select array_agg(id::text) from account.sign_ins where user_id = any($1)`, *s.people)
	rows, err := s.fixture.Owner.Query(s.t.Context(), `select token, data from account.sessions`)
	s.must(err)
	var token string
	var data []byte
	sessions := map[string][]byte{}
	_, err = pgx.ForEachRow(rows, []any{&token, &data}, func() error {
		deadline, values, err := scs.GobCodec{}.Decode(data)
		if signIn, _ := values["sign_in"].(string); err != nil || !slices.Contains(signIns, signIn) {
			return err
		}
		values["proved_at"] = time.Now().Add(-session.Freshness).Unix()
		sessions[token], err = scs.GobCodec{}.Encode(deadline, values)
		return err
	})
	s.must(err)
	for token, data := range sessions {
		s.fixture.Exec(`update account.sessions set data = $2 where token = $1`, token, data)
	}
}

// inside reports whether a user is signed in in the browser.
func inside(b *browsertest.Browser) bool { return b.Get("/settings/user").Status == http.StatusOK }

// hasEnded requires that cookies from before a sign-in no longer count.
func (s *site) hasEnded(before []*http.Cookie) {
	s.t.Helper()
	old := s.browser()
	old.SetCookies(before)
	if inside(old) {
		s.t.Error("the session from before the sign-in still counts")
	}
}

// wants requires the status of a page, and words of its text or, of a redirect, its location: the beginning of it if
// the word ends in a question mark. It returns the page for further checks.
func (s *site) wants(what string, page *browsertest.Page, status int, words ...string) *browsertest.Page {
	s.t.Helper()
	if page = page.As(what); status != http.StatusSeeOther {
		return page.Wants(status, words...)
	}
	page.Wants(status)
	for _, word := range words {
		if !strings.HasSuffix(word, "?") || !strings.HasPrefix(page.Location(), word) {
			page.LeadsTo(word)
		}
	}
	return page
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
