package app_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/descope/virtualwebauthn"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

func TestPasskey_IsAddedAndSignsIn(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada := s.person()
	d := newDevice(s)
	b := s.signedIn(ada)
	if page := d.addTo(b, "  Work laptop "); page.Status != http.StatusSeeOther ||
		page.Location() != "/settings/passkeys" {
		t.Fatalf("adding: %d %q %s", page.Status, page.Location(), page.Text())
	}
	if page := b.Get("/settings/passkeys"); !page.HasText("The passkey Work laptop was added.") ||
		!page.HasText("Never used") {
		t.Errorf("the page does not show it: %s", page.Text())
	}
	other := s.browser()
	before := other.Get("/login")
	page := d.signIn(other)
	if page.Status != http.StatusSeeOther || page.Location() != "/settings/apps" || !inside(other) {
		t.Fatalf("sign-in: %d %q %s", page.Status, page.Location(), page.Text())
	}
	if before.Status != http.StatusOK || d.signIn(other).Status != http.StatusSeeOther {
		t.Error("a second sign-in fails")
	}
	if !other.Get("/settings/passkeys").HasText("Last used") {
		t.Error("the last use is not shown")
	}
	if n := s.count(`select count(*) from account.sign_ins where user_id = $1 and method = 'passkey'`, ada.ID); n != 2 {
		t.Errorf("%d sign-ins by passkey", n)
	}
	if s.events(ada.ID, audit.PasskeyAdded) != 1 || s.events(ada.ID, audit.SignInSucceeded) != 3 {
		t.Error("the audit log lacks an event")
	}
}

func TestPasskey_SignInStartsNewSession(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada, bob := s.person(), s.person()
	d := s.added(ada)
	b := s.signedIn(bob)
	before := b.Cookies()
	if page := d.signIn(b); page.Status != http.StatusSeeOther {
		t.Fatal(page.Text())
	}
	stolen := s.browser()
	stolen.SetCookies(before)
	if inside(stolen) {
		t.Error("the session before the sign-in is still active")
	}
	if !b.Get("/settings/user").HasText(ada.Email) {
		t.Error("another user is signed in")
	}
}

func TestP1_ResponseIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	d := s.added(s.person())
	b := s.browser()
	answer := d.signed(options(t, b, "/login/passkey/options"))
	pages := make([]*browsertest.Page, 8)
	var all sync.WaitGroup
	for i := range pages {
		all.Go(func() { pages[i] = present(b, answer) })
	}
	all.Wait()
	won := 0
	for _, page := range pages {
		switch page.Status {
		case http.StatusSeeOther:
			won++
		case http.StatusBadRequest:
		default:
			t.Errorf("%d %s", page.Status, page.Text())
		}
	}
	if won != 1 {
		t.Errorf("%d of 8 answers to one challenge signed in", won)
	}
	if n := s.count(`select count(*) from account.passkeys where copied_at is not null`); n != 0 {
		t.Error("a replayed response stopped the passkey as a copy")
	}
}

func TestP1_BadResponseUsesUpChallenge(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	d := s.added(s.person())
	b := s.browser()
	asked := options(t, b, "/login/passkey/options")
	d.party.Origin = "https://evil.example"
	wrong := d.signed(asked)
	d.party.Origin = s.url
	if page := present(b, wrong); page.Status != http.StatusBadRequest {
		t.Fatalf("%d", page.Status)
	}
	if page := present(b, d.signed(asked)); page.Status != http.StatusBadRequest {
		t.Errorf("a second answer to one challenge: %d", page.Status)
	}
}

func TestP1_ChallengeExpiresAfterFiveMinutes(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	d := s.added(s.person())
	b := s.browser()
	asked := options(t, b, "/login/passkey/options")
	if n := s.count(`select count(*) from account.ceremonies
		where expires_at between now() + interval '4 minutes 50 seconds' and now() + interval '5 minutes'`); n != 1 {
		t.Error("the challenge does not live for five minutes")
	}
	s.fixture.Exec(`update account.ceremonies set expires_at = expires_at - interval '5 minutes'`)
	if page := present(b, d.signed(asked)); page.Status != http.StatusBadRequest {
		t.Errorf("late: %d", page.Status)
	}
	options(t, b, "/login/passkey/options")
	if n := s.count(`select count(*) from account.ceremonies`); n != 1 {
		t.Errorf("%d ceremonies are stored: the expired one was not deleted", n)
	}
}

func TestP1_ChallengeIsBoundToBrowser(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	d := s.added(s.person())
	mine, thief := s.browser(), s.browser()
	answer := d.signed(options(t, mine, "/login/passkey/options"))
	if page := present(thief, answer); page.Status != http.StatusBadRequest {
		t.Errorf("a browser without a challenge: %d", page.Status)
	}
	options(t, thief, "/login/passkey/options")
	if page := present(thief, answer); page.Status != http.StatusBadRequest || inside(thief) {
		t.Errorf("another browser: %d", page.Status)
	}
	if page := present(mine, answer); page.Status != http.StatusSeeOther {
		t.Errorf("C4: another browser used up the challenge: %d", page.Status)
	}
}

func TestChallenge_IsBoundToPurpose(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada := s.person()
	d := s.added(ada)
	b := s.browser()
	d.signIn(b)
	again := options(t, b, "/login/again/passkey/options")
	options(t, b, "/login/passkey/options") // sets the browser's cookie
	if page := present(b, d.signed(again)); page.Status != http.StatusBadRequest {
		t.Errorf("a challenge for a new proof signs in: %d", page.Status)
	}
	signIn := options(t, b, "/login/passkey/options")
	page := b.Post("/login/again/passkey", url.Values{"credential": {d.signed(signIn)}})
	if !strings.HasPrefix(page.Location(), "/login/again?") {
		t.Errorf("a challenge for a sign-in is a new proof: %d %q", page.Status, page.Location())
	}
	proof, err := virtualwebauthn.ParseAssertionOptions(options(t, b, "/login/again/passkey/options"))
	s.must(err)
	made := virtualwebauthn.CreateAttestationResponse(d.party, d.authenticator, newPasskey(),
		virtualwebauthn.AttestationOptions{Challenge: proof.Challenge, RelyingPartyID: "localhost"})
	if page := b.Post("/settings/passkeys", url.Values{
		"name":       {"x"},
		"credential": {made},
	}); page.Status != http.StatusBadRequest {
		t.Errorf("a challenge for a new proof makes a passkey: %d", page.Status)
	}
	d.key.Counter++
	signed := virtualwebauthn.CreateAssertionResponse(d.party, d.authenticator, d.key, *proof)
	if page := b.Post("/login/again/passkey", url.Values{"credential": {signed}}); page.Location() != "/settings/user" {
		t.Errorf("C4: another purpose used up the challenge: %d %q", page.Status, page.Location())
	}
}

func TestPasskey_AlteredResponseIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	for name, spoil := range map[string]func(*device){
		"another origin": func(d *device) { d.party.Origin = "https://evil.example" },
		"another port":   func(d *device) { d.party.Origin = "http://localhost:1" },
		"a subdomain": func(d *device) {
			d.party.Origin = strings.Replace(s.url, "localhost", "a.localhost", 1)
		},
		"another relying party": func(d *device) { d.party.ID = "evil.example" },
		"user not verified":     func(d *device) { d.authenticator.Options.UserNotVerified = true },
		"user not present":      func(d *device) { d.authenticator.Options.UserNotPresent = true },
		"unknown handle":        func(d *device) { d.authenticator.Options.UserHandle = []byte("somebody else") },
		"no handle":             func(d *device) { d.authenticator.Options.UserHandle = nil },
		"another key":           func(d *device) { d.key.Key = newPasskey().Key },
		"unknown credential":    func(d *device) { d.key.ID = []byte("unknown") },
		"backup flag turned":    func(d *device) { d.authenticator.Options.BackupEligible = true },
	} {
		d := s.added(s.person())
		if page := d.signIn(s.browser()); page.Status != http.StatusSeeOther {
			t.Fatalf("%s: refused before the change", name)
		}
		spoil(d)
		b := s.browser()
		page, says := d.signIn(b), "The passkey was not accepted"
		if name == "backup flag turned" {
			says = "This passkey has changed"
		}
		if page.Status != http.StatusBadRequest || !page.HasText(says) || inside(b) {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
}

func TestPasskey_MalformedResponseIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	b := s.browser()
	options(t, b, "/login/passkey/options")
	for _, answer := range []string{
		"",
		"{}",
		"null",
		"[",
		`{"id":"YQ","rawId":"YQ","type":"public-key","response":{}}`,
		strings.Repeat("[", 5000),
	} {
		if page := present(b, answer); page.Status != http.StatusBadRequest {
			t.Errorf("%.20q: %d", answer, page.Status)
		}
	}
	if page := present(b, strings.Repeat("a", 70<<10)); page.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("70 KiB: %d", page.Status)
	}
}

func TestP2_CopiedPasskeyIsStopped(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada := s.person()
	d := s.added(ada)
	d.key.Counter = 10
	if page := d.signIn(s.browser()); page.Status != http.StatusSeeOther {
		t.Fatal("refused at first")
	}
	copied := *d
	copied.key.Counter = 5
	for _, thief := range []*device{&copied, &copied, d} {
		b := s.browser()
		if page := thief.signIn(b); page.Status != http.StatusBadRequest || inside(b) {
			t.Errorf("counter %d: %d", thief.key.Counter, page.Status)
		}
	}
	if n := s.events(ada.ID, audit.PasskeyStopped); n != 1 {
		t.Errorf("%d events %s, want 1", n, audit.PasskeyStopped)
	}
	b := s.signedIn(ada)
	if !b.Get("/settings/passkeys").HasText("This passkey may have been copied") ||
		!b.Get("/settings/security").HasText("The passkey Laptop was blocked") {
		t.Error("the pages do not tell the user")
	}
}

func TestP2_SameCounterTwiceIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada := s.person()
	d := s.added(ada)
	browsers := []*browsertest.Browser{s.browser(), s.browser()}
	answers := make([]string, 2)
	for i, b := range browsers {
		asked, err := virtualwebauthn.ParseAssertionOptions(options(t, b, "/login/passkey/options"))
		s.must(err)
		d.key.Counter = 7
		answers[i] = virtualwebauthn.CreateAssertionResponse(d.party, d.authenticator, d.key, *asked)
	}
	statuses := map[int]int{}
	var all sync.WaitGroup
	var mu sync.Mutex
	for i, b := range browsers {
		all.Go(func() {
			page := present(b, answers[i])
			mu.Lock()
			defer mu.Unlock()
			statuses[page.Status]++
		})
	}
	all.Wait()
	// If the second request blocks the passkey before the first has made its session, both are refused.
	if statuses[http.StatusSeeOther] > 1 || statuses[http.StatusSeeOther]+statuses[http.StatusBadRequest] != 2 {
		t.Errorf("%v", statuses)
	}
	if n := s.events(ada.ID, audit.PasskeyStopped); n != 1 {
		t.Errorf("%d events %s, want 1", n, audit.PasskeyStopped)
	}
}

func TestP2_PasskeyWithoutCounterIsAccepted(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	d := s.added(s.person())
	for range 2 {
		b := s.browser()
		asked, err := virtualwebauthn.ParseAssertionOptions(options(t, b, "/login/passkey/options"))
		s.must(err)
		answer := virtualwebauthn.CreateAssertionResponse(d.party, d.authenticator, d.key, *asked)
		if page := present(b, answer); page.Status != http.StatusSeeOther {
			t.Errorf("%d", page.Status)
		}
	}
}

func TestPasskey_DisabledUserLooksLikeUnknownPasskey(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada := s.person()
	d, stranger := s.added(ada), newDevice(s)
	stranger.authenticator.Options.UserHandle = ada.ID[:]
	s.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, ada.ID)
	text := func(d *device) string {
		b := s.browser()
		page := d.signIn(b)
		if page.Status != http.StatusBadRequest || inside(b) {
			t.Errorf("%d", page.Status)
		}
		words, _, _ := strings.Cut(page.Text(), "Request id")
		return words
	}
	if a, b := text(d), text(stranger); a != b {
		t.Errorf("%q, %q", a, b)
	}
}

func TestReauth_PasskeyOnlyForItsUser(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada, bob := s.person(), s.person()
	hers, his := s.added(ada), s.added(bob)
	b, elsewhere := s.signedIn(ada), s.signedIn(ada)
	prove := func(d *device, asker *browsertest.Browser) string {
		answer := d.signed(options(t, asker, "/login/again/passkey/options"))
		return b.Post("/login/again/passkey", url.Values{"credential": {answer}, "return": {"/settings/passkeys"}}).
			Location()
	}
	fresh := func() bool { return !b.Get("/settings/passkeys").HasText("confirm your identity first") }
	s.stale()
	at := prove(his, b)
	if page := b.Get("/login/again?return=/settings/apps"); !page.HasText("The passkey was not accepted") {
		t.Errorf("the page does not name the cause: %s", page.Text())
	}
	if !strings.HasPrefix(at, "/login/again?") || fresh() {
		t.Errorf("passkey of another user: %q", at)
	}
	if at := prove(hers, elsewhere); !strings.HasPrefix(at, "/login/again?") || fresh() {
		t.Errorf("a challenge of another sign-in: %q", at)
	}
	before := b.Cookies()
	if at := prove(hers, b); at != "/settings/passkeys" || !fresh() {
		t.Errorf("own passkey: %q", at)
	}
	old := s.browser()
	old.SetCookies(before)
	if inside(old) {
		t.Error("the session before the reauthentication is still active")
	}
	if n := s.events(ada.ID, audit.SignInProved); n != 1 {
		t.Errorf("%d events", n)
	}
}

func TestPasskey_SecretsAreNotStoredOrLogged(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	d := s.added(s.person())
	b := s.browser()
	asked := options(t, b, "/login/passkey/options")
	parsed, err := virtualwebauthn.ParseAssertionOptions(asked)
	s.must(err)
	challenge := base64.RawURLEncoding.EncodeToString(parsed.Challenge)
	const hashed = `select count(*) from account.ceremonies
		where secret_hash = sha256($1) and binding_hash <> sha256($1)`
	if n := s.count(hashed, []byte(challenge)); n != 1 {
		t.Error("the challenge is not stored as its hash")
	}
	answer := d.signed(asked)
	present(b, answer)
	present(b, answer)
	for name, secret := range map[string]string{"challenge": challenge, "browser cookie": b.Cookies()[0].Value} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the %s is in the log", name)
		}
	}
}
