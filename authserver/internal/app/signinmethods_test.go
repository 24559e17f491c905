package app_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	keysPage  = "/settings/passkeys"
	removeKey = keysPage + "/remove"
)

func TestPasskeys_ChangesNeedRecentAuthentication(t *testing.T) {
	s := shared(t)
	ada := s.person()
	s.added(ada)
	b, d := s.signedIn(ada), newDevice(s)
	s.usedSecondFactor(ada)
	remove := b.Get(keysPage).Form(removeKey)
	creation := s.options(b, keysPage+"/options")
	s.stale()
	const reauth = "/login/again?return=%2Fsettings%2Fpasskeys"
	var refusal struct{ Next string }
	answer := b.Post(keysPage+"/options", nil)
	s.wants("options", answer, 403)
	s.must(json.Unmarshal([]byte(answer.Body), &refusal))
	equal(t, "where the script leads", refusal.Next, reauth)
	made := url.Values{"name": {"x"}, "credential": {d.made(creation)}}
	s.wants("adding", b.Post(keysPage, made), 303, reauth)
	s.wants("removing", b.Post(removeKey, remove), 303, reauth)
	s.rows(1, "passkeys", "user_id = $1", ada.ID)
	s.wants("the page", b.Get(keysPage), 200, "confirm your identity first").Lacks("Remove Laptop")
	b.Get(reauth).Send("/login/again", browsertest.Fields{"password": browsertest.Password})
	s.wants("removing after a new proof", b.Post(removeKey, remove), 303, keysPage)
	s.rows(0, "passkeys", "user_id = $1", ada.ID)
	s.recorded(1, audit.PasskeyRemoved, ada.ID)
}

func TestAddPasskey_OnlyOnceAndInTheSameSignIn(t *testing.T) {
	s := shared(t)
	ada, bob := s.person(), s.person()
	mine, elsewhere, bobs := s.signedIn(ada), s.signedIn(ada), s.signedIn(bob)
	d := newDevice(s)
	fields := url.Values{"name": {"Laptop"}, "credential": {d.made(s.options(mine, keysPage+"/options"))}}
	s.wants("another session of hers", elsewhere.Post(keysPage, fields), 400, "was not added")
	s.wants("another user", bobs.Post(keysPage, fields), 400, "was not added")
	s.wants("signed out", s.browser().Post(keysPage, fields), 303, "/login?")
	s.wants("the sign-in with the challenge", mine.Post(keysPage, fields), 303)
	s.wants("twice", mine.Post(keysPage, fields), 400)
	s.wants("a credential of another user", d.addTo(bobs, "Hers"), 400)
	s.rows(1, "passkeys", "user_id = $1", ada.ID)
	s.rows(0, "passkeys", "user_id = $1", bob.ID)
}

func TestAddPasskey_ChecksOriginUserAndName(t *testing.T) {
	s := shared(t)
	b := s.signedIn(s.person())
	for name, spoil := range map[string]func(*device){
		"another origin":        func(d *device) { d.party.Origin = "https://evil.example" },
		"another relying party": func(d *device) { d.party.ID = "evil.example" },
		"user not verified":     func(d *device) { d.authenticator.Options.UserNotVerified = true },
	} {
		d := newDevice(s)
		spoil(d)
		s.wants(name, d.addTo(b, "Laptop"), 400)
	}
	for name, refusal := range map[string]string{
		"":                                     "Enter a name.",
		"  ":                                   "Enter a name.",
		strings.Repeat("é", passkey.MaxName+1): "Must have at most 60 characters.",
		"two\nlines":                           "Must be a single line",
		"\xff":                                 "Must be valid UTF-8 text.",
	} {
		s.wants(name, newDevice(s).addTo(b, name), 400, refusal)
	}
	s.wants("the longest name", newDevice(s).addTo(b, strings.Repeat("é", passkey.MaxName)), 303)
}

func TestP3_LastSignInMethodIsNotRemoved(t *testing.T) {
	s := shared(t)
	ada, bob := s.person(), s.person()
	first, others := s.added(ada), s.added(bob)
	b := s.signedIn(ada)
	s.usedSecondFactor(ada)
	s.removePassword(ada)
	removes := func() *browsertest.Page { return b.Get(keysPage).Send(removeKey, nil) }
	s.wants("the only one", removes(), 409, "You need this passkey to sign in")
	// A link to a provider that the deployment no longer has does not sign the user in.
	s.fixture.Exec(`insert into account.identities (issuer, subject, user_id)
		values ('https://former.example', $1::uuid::text, $1)`, ada.ID)
	s.wants("the only one that still counts", removes(), 409)
	newDevice(s).addTo(b, "Phone")
	s.wants("one of two", removes(), 303)
	s.wants("a removed one signs in", first.signIn(s.browser()), 400)
	own := b.Get(keysPage).Form(removeKey)
	own.Set("id", read[string](s, `select id::text from account.passkeys where credential_id = $1`, others.key.ID))
	b.Post(removeKey, own)
	s.wants("the passkey of another user", others.signIn(s.browser()), 303)
}

func TestP4_UserHasNoMoreThanTwentyPasskeys(t *testing.T) {
	s := shared(t)
	ada := s.person()
	b := s.signedIn(ada)
	s.insertPasskeys(19, ada)
	s.usedSecondFactor(ada)
	var answers []string
	for range 3 {
		answers = append(answers, newDevice(s).made(s.options(b, keysPage+"/options")))
	}
	statuses := atOnce(3, func(i int) *browsertest.Page {
		return b.Post(keysPage, url.Values{"name": {"x"}, "credential": {answers[i]}})
	})
	equal(t, "passkeys added", statuses[303], 1)
	s.rows(passkey.MaxPerUser, "passkeys", "user_id = $1", ada.ID)
	s.wants("the page", b.Get(keysPage), 200, "the maximum number of passkeys")
}

func TestRemovePasskey_OtherSessionOrSiteIsRefused(t *testing.T) {
	s := shared(t)
	ada := s.person()
	d := s.added(ada)
	b, elsewhere := s.signedIn(ada), s.signedIn(ada)
	s.usedSecondFactor(ada)
	s.wants("another session's form", b.Post(removeKey, elsewhere.Get(keysPage).Form(removeKey)), 403)
	own := b.Get(keysPage).Form(removeKey)
	b.Headers.Set("Origin", "https://evil.example")
	for path, fields := range map[string]url.Values{
		removeKey:                      own,
		keysPage:                       {},
		keysPage + "/options":          nil,
		"/login/passkey":               {},
		"/login/passkey/options":       nil,
		"/login/again/passkey":         {},
		"/login/again/passkey/options": nil,
		"/login/again":                 {},
	} {
		s.wants(path+" from another site", b.Post(path, fields), 403)
	}
	s.wants("the passkey", d.signIn(s.browser()), 303)
}

func TestPasskey_StoresOnlyKnownTransports(t *testing.T) {
	s := shared(t)
	ada := s.person()
	b, d := s.signedIn(ada), newDevice(s)
	var answer map[string]any
	s.must(json.Unmarshal([]byte(d.made(s.options(b, keysPage+"/options"))), &answer))
	answer["response"].(map[string]any)["transports"] = []string{
		"internal", "<b>", "hybrid", "internal", "", strings.Repeat("x", 9000), "cable", "smart-card",
	}
	text, err := json.Marshal(answer)
	s.must(err)
	s.needs("adding", b.Post(keysPage, url.Values{"name": {"Laptop"}, "credential": {string(text)}}), 303)
	stored := read[[]string](s, `select transports from account.passkeys where user_id = $1`, ada.ID)
	slices.Sort(stored)
	equal(t, "stored", strings.Join(stored, " "), "hybrid internal smart-card")
}

func TestPasskeys_AreOptional(t *testing.T) {
	off, on := bare(t).forTest(t), shared(t)
	b := off.signedIn(off.person())
	for _, path := range []string{"/login/passkey/options", "/login/passkey", keysPage + "/options", removeKey} {
		off.wants(path+" where it is off", b.Post(path, nil), 404)
	}
	const policy = "Content-Security-Policy"
	page := off.browser().Get("/login").As("the sign-in page where passkeys are off").Omits("passkey")
	equal(t, "its policy", page.Header.Get(policy), "default-src 'none'; style-src 'self'; img-src 'self' data:; "+
		"frame-ancestors 'none'; base-uri 'none'; form-action 'self'; script-src 'self'; connect-src 'self'")
	off.lacks("the settings where it is off", b.Get("/settings/security"), "Passkeys")
	allows := on.browser().Get("/login").Header.Get(policy)
	contains(t, "the policy of the sign-in page", allows, "script-src 'self'", "connect-src 'self'")
	omits(t, "the policy of the sign-in page", allows, "unsafe")
	omits(t, "the policy of another page", on.browser().Get("/nothing").Header.Get(policy), "script-src")
	on.wants("the settings", on.signedIn(on.person()).Get("/settings/security"), 200, "Manage passkeys")
}

func TestPasskeys_AreOnByDefaultWhereBrowsersSupportThem(t *testing.T) {
	config, _, err := app.LoadConfig(environ("ALMONER_NOTICE", "0s"))
	testkit.Must(t, err)
	equal(t, "passkeys are on", config.Passkeys, true)
	at127 := own(t, func(c *app.Config) { c.AppURL = strings.Replace(c.AppURL, "localhost", "127.0.0.1", 1) })
	for host, s := range map[string]*site{"localhost": withoutMail(t).forTest(t), "127.0.0.1": at127} {
		page := s.wants(host, s.browser().Get("/login"), 200)
		for _, text := range []string{"Sign in with a passkey", `autocomplete="username webauthn"`} {
			equal(t, host+" has "+text, strings.Contains(page.Body, text), host == "localhost")
		}
	}
}

func TestSignInMethods_OutageIs503AndUsesUpNothing(t *testing.T) {
	p := newProvider(t)
	s := own(t, p.of)
	ada := s.person()
	p.vouching(map[string]any{"email": ada.Email})
	d := s.added(ada)
	mine, stranger, other := s.signedIn(ada), s.browser(), s.browser()
	signed := url.Values{"credential": {d.signed(s.options(stranger, "/login/passkey/options"))}}
	callback := p.agree(s, begin(s, other, "/login/upstream"))
	again := url.Values{"credential": {d.signed(s.options(mine, "/login/again/passkey/options"))}}
	restore := s.fixture.Database.Cut(t)
	for name, page := range map[string]*browsertest.Page{
		"a challenge":         stranger.Post("/login/passkey/options", nil),
		"an answer":           stranger.Post("/login/passkey", signed),
		"the page":            mine.Get(keysPage),
		"a new one":           mine.Post(keysPage+"/options", nil),
		"a proof":             mine.Post("/login/again/passkey", again),
		"the question":        mine.Get("/login/again"),
		"to the provider":     other.Get("/login/upstream"),
		"back from it":        other.Get(callback),
		"a proof at provider": mine.Get("/login/again/upstream"),
		"a proof by password": mine.Post("/login/again", url.Values{"password": {browsertest.Password}}),
		"a removal":           mine.Post(removeKey, nil),
	} {
		s.wants(name, page, 503).HasHeader("Retry-After")
	}
	restore()
	s.wants("the passkey's answer after the outage", stranger.Post("/login/passkey", signed), 303)
	s.wants("the provider's answer after the outage", other.Get(callback), 303)
}

func TestReauth_Password(t *testing.T) {
	s := shared(t)
	ada := s.person()
	b := s.signedIn(ada)
	proves := func(password, to string) *browsertest.Page {
		return b.Post("/login/again", url.Values{"password": {password}, "return": {to}})
	}
	s.wants("no password", proves("", "/settings/apps"), 400)
	s.wants("a wrong password", proves("wrong", "/settings/apps"), 400)
	s.recorded(0, audit.SignInProved, ada.ID)
	before := b.Cookies()
	s.wants("the password", proves(browsertest.Password, "//evil.example"), 303, "/settings/user")
	s.recorded(1, audit.SignInProved, ada.ID)
	s.hasEnded(before)
	equal(t, "signed in", inside(b), true)
	signedOut := s.browser().Get("/login/again?return=/settings/apps")
	s.wants("signed out", signedOut, 303, "/login?return=%2Fsettings%2Fapps")
	for range 10 {
		proves("wrong", "")
	}
	s.wants("after ten wrong ones", proves(browsertest.Password, ""), 429).HasHeader("Retry-After")
}

func TestU2_SignInIsAsFreshAsAuthTime(t *testing.T) {
	s := shared(t)
	p, ada := s.provider(), s.person()
	for name, c := range map[string]struct {
		authTime any
		fresh    bool
	}{
		"it does not say":      {nil, false},
		"just now":             {time.Now().Unix(), true},
		"nine minutes ago":     {time.Now().Add(-9 * time.Minute).Unix(), true},
		"an hour ago":          {time.Now().Add(-time.Hour).Unix(), false},
		"its clock is ahead":   {time.Now().Add(30 * time.Second).Unix(), true},
		"tomorrow":             {time.Now().Add(24 * time.Hour).Unix(), false},
		"before there was any": {-5, false},
	} {
		p.vouching(map[string]any{"email": ada.Email, "auth_time": c.authTime})
		b := s.browser()
		p.through(s, b)
		page := s.wants(name, b.Get(keysPage), 200)
		equal(t, name+": fresh", !page.HasText("confirm your identity first"), c.fresh)
		equal(t, name+": a passkey may be added", b.Post(keysPage+"/options", nil).Status == 200, c.fresh)
	}
}

// Most were begun at another process.
func TestSignIn_TooManyAttemptsFromAddressAreLimited(t *testing.T) {
	s := shared(t)
	elsewhere := session.NewAttempts(redis.NewLoginCounters(s.Redis), slog.New(slog.DiscardHandler), time.Now)
	for range 597 {
		elsewhere.Begun(t.Context(), netip.MustParseAddr(s.address))
	}
	stranger, other := s.browser(), s.browser()
	other.Headers.Set("X-Forwarded-For", apitest.NewAddress())
	asks := func() *browsertest.Page { return stranger.Post("/login/passkey/options", nil) }
	for range 3 {
		s.needs("a challenge", asks(), 200)
	}
	page := s.wants("one more challenge", asks(), 429, "Too many attempts")
	if wait, err := strconv.Atoi(page.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 900 {
		t.Errorf("it says to wait for %q", page.Header.Get("Retry-After"))
	}
	s.wants("the provider", stranger.Get("/login/upstream"), 429).HasHeader("Retry-After")
	s.rows(3, "ceremonies", "binding_hash = sha256(('browser:' || $1)::bytea)", stranger.Cookies()[0].Value)
	s.wants("from elsewhere", other.Post("/login/passkey/options", nil), 200)
	stranger.SignIn(s.person()) // passwords are counted separately
}

const (
	composed   = "Spaziergang \u00fcber Br\u00fccken"
	decomposed = "Spaziergang u\u0308ber Bru\u0308cken"
	// formerHash is what earlier releases stored for decomposed.
	formerHash = "$argon2id$v=19$m=8,t=1,p=1$MNA+T9fAA0uMSLGcBUwyMA$hGLHOdaHsc2LDQ4wb+n7zVt/JA5d6pOUjC5Dg20OPwM"
)

// Addresses and passwords are one and the same in any spelling (contract, section 5).
func TestSignIn_AcceptsAddressAndPasswordInAnySpelling(t *testing.T) {
	s := shared(t)
	ofTest := "-" + uuid.NewString()[:8] + "@"
	hash, err := session.HashPassword(composed, session.LowestCost())
	s.must(err)
	for _, stored := range []string{"ada@münchen.example", "jos\u00e9@xn--zrich-kva.example"} {
		id := s.fixture.User(strings.Replace(stored, "@", ofTest, 1))
		s.fixture.Exec(`update account.users set password_hash = $2 where id = $1`, id, hash.Reveal())
	}
	for _, c := range []struct {
		email, password string
		status          int
	}{
		{"ada@münchen.example", composed, 303},
		{"ada@xn--mnchen-3ya.example", decomposed, 303},
		{"Ada@MU\u0308NCHEN.example", composed, 303},
		{"\u202aada@münchen.example\u202c\u00a0", decomposed, 303},
		{"jose\u0301@zürich.example", decomposed, 303},
		{"JOS\u00c9@xn--zrich-kva.example", composed, 303},
		{"ada@munchen.example", composed, 400},
		{"ada@münchen.example", "Spaziergang uber Brucken", 400},
	} {
		status := s.tries(strings.Replace(c.email, "@", ofTest, 1), c.password)
		equal(t, fmt.Sprintf("%+q", c.email), status, c.status)
	}
}

// A hash that an earlier release stored for the text as it was typed is accepted once, and then replaced by the hash of
// the normalized password.
func TestSignIn_RenewsHashOfEarlierRelease(t *testing.T) {
	s := shared(t)
	ada := s.person()
	s.fixture.Exec(`update account.users set password_hash = $2 where id = $1`, ada.ID, formerHash)
	equal(t, "the composed password", s.tries(ada.Email, composed), 400)
	equal(t, "the decomposed password", s.tries(ada.Email, decomposed), 303)
	equal(t, "the composed password then", s.tries(ada.Email, composed), 303)
	equal(t, "the decomposed password then", s.tries(ada.Email, decomposed), 303)
	s.rows(0, "users", "password_hash = $1", formerHash)
}
