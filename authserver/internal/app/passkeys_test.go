package app_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/descope/virtualwebauthn"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

// A sign-in starts a new session.
func TestPasskey_IsAddedAndSignsIn(t *testing.T) {
	s := shared(t)
	ada, d := s.person(), newDevice(s)
	b := s.signedIn(ada)
	s.needs("adding", d.addTo(b, "  Work laptop "), 303, "/settings/passkeys")
	s.wants("the page", b.Get("/settings/passkeys"), 200, "The passkey Work laptop was added.", "Never used")
	other := s.signedIn(s.person())
	before := other.Cookies()
	s.needs("sign-in", d.signIn(other), 303, "/settings/apps")
	s.hasEnded(before)
	s.wants("the user", other.Get("/settings/user"), 200, ada.Email)
	s.wants("a second sign-in", d.signIn(other), 303)
	s.wants("the page after use", other.Get("/settings/passkeys"), 200, "Last used")
	s.rows(2, "sign_ins", "user_id = $1 and method = 'passkey'", ada.ID)
	s.recorded(1, audit.PasskeyAdded, ada.ID)
	s.recorded(3, audit.SignInSucceeded, ada.ID)
}

func TestP1_ResponseIsAcceptedOnce(t *testing.T) {
	s := shared(t)
	ada := s.person()
	d := s.added(ada)
	b := s.browser()
	answer := d.signed(s.options(b, "/login/passkey/options"))
	statuses := atOnce(8, func(int) *browsertest.Page { return present(b, answer) })
	sameStatuses(t, "answers to one challenge", statuses, map[int]int{303: 1, 400: 7})
	s.rows(0, "passkeys", "copied_at is not null and user_id = $1", ada.ID) // a replay is no copy
}

func TestP1_BadResponseUsesUpChallenge(t *testing.T) {
	s := shared(t)
	d := s.added(s.person())
	b := s.browser()
	asked := s.options(b, "/login/passkey/options")
	d.party.Origin = "https://evil.example"
	wrong := d.signed(asked)
	d.party.Origin = s.url
	s.needs("another origin", present(b, wrong), 400)
	s.wants("a second answer to one challenge", present(b, d.signed(asked)), 400)
}

// challengeOf returns the challenge of options, as it is in a response.
func (s *site) challengeOf(options string) string {
	s.t.Helper()
	asked, err := virtualwebauthn.ParseAssertionOptions(options)
	s.must(err)
	return base64.RawURLEncoding.EncodeToString(asked.Challenge)
}

// Neither the challenge nor the cookie is in Postgres or in the log.
func TestP1_ChallengeExpiresAfterFiveMinutes(t *testing.T) {
	s := shared(t)
	d := s.added(s.person())
	b := s.browser()
	before := read[time.Time](s, "select now()")
	asked := s.options(b, "/login/passkey/options")
	challenge := []byte(s.challengeOf(asked))
	s.rows(1, "ceremonies", `secret_hash = sha256($1) and binding_hash <> sha256($1)
		and expires_at between $2::timestamptz + interval '5 minutes' and now() + interval '5 minutes'`,
		challenge, before)
	s.fixture.Exec(`update account.ceremonies set expires_at = expires_at - interval '5 minutes'
		where secret_hash = sha256($1)`, challenge)
	s.wants("late", present(b, d.signed(asked)), 400)
	fresh := s.options(b, "/login/passkey/options")
	s.rows(0, "ceremonies", "secret_hash = sha256($1)", challenge)
	answer := d.signed(fresh)
	s.wants("in time", present(b, answer), 303)
	s.wants("again", present(b, answer), 400)
	omits(t, "the log", s.log.String(), string(challenge), s.challengeOf(fresh), b.Cookies()[0].Value)
}

func TestP1_ChallengeIsBoundToBrowser(t *testing.T) {
	s := shared(t)
	d := s.added(s.person())
	mine, thief := s.browser(), s.browser()
	answer := d.signed(s.options(mine, "/login/passkey/options"))
	s.wants("a browser without a challenge", present(thief, answer), 400)
	s.options(thief, "/login/passkey/options")
	s.refuses(thief, "another browser", present(thief, answer), 400)
	s.wants("C4: the browser of the challenge, later", present(mine, answer), 303)
}

func TestChallenge_IsBoundToPurpose(t *testing.T) {
	s := shared(t)
	ada := s.person()
	d := s.added(ada)
	b := s.browser()
	d.signIn(b)
	again := s.options(b, "/login/again/passkey/options")
	s.options(b, "/login/passkey/options") // sets the browser's cookie
	s.wants("a challenge for a new proof, to sign in", present(b, d.signed(again)), 400)
	signIn := s.options(b, "/login/passkey/options")
	page := b.Post("/login/again/passkey", url.Values{"credential": {d.signed(signIn)}})
	s.wants("a challenge for a sign-in, as a new proof", page, 303, "/login/again?")
	proof, err := virtualwebauthn.ParseAssertionOptions(s.options(b, "/login/again/passkey/options"))
	s.must(err)
	made := virtualwebauthn.CreateAttestationResponse(d.party, d.authenticator, newPasskey(),
		virtualwebauthn.AttestationOptions{Challenge: proof.Challenge, RelyingPartyID: "localhost"})
	page = b.Post("/settings/passkeys", url.Values{"name": {"x"}, "credential": {made}})
	s.wants("a challenge for a new proof, to make a passkey", page, 400)
	d.key.Counter++
	signed := virtualwebauthn.CreateAssertionResponse(d.party, d.authenticator, d.key, *proof)
	page = b.Post("/login/again/passkey", url.Values{"credential": {signed}})
	s.wants("C4: the purpose of the challenge, later", page, 303, "/settings/user")
}

func TestPasskey_AlteredResponseIsRefused(t *testing.T) {
	s := shared(t)
	subdomain := strings.Replace(s.url, "localhost", "a.localhost", 1)
	for name, spoil := range map[string]func(*device){
		"another origin":        func(d *device) { d.party.Origin = "https://evil.example" },
		"another port":          func(d *device) { d.party.Origin = "http://localhost:1" },
		"a subdomain":           func(d *device) { d.party.Origin = subdomain },
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
		s.needs(name+", before the change", d.signIn(s.browser()), 303)
		spoil(d)
		b, says := s.browser(), "The passkey was not accepted"
		if name == "backup flag turned" {
			says = "This passkey has changed"
		}
		s.refuses(b, name, d.signIn(b), 400, says)
	}
}

func TestPasskey_MalformedResponseIsRefused(t *testing.T) {
	s := shared(t)
	b := s.browser()
	s.options(b, "/login/passkey/options")
	const empty = `{"id":"YQ","rawId":"YQ","type":"public-key","response":{}}`
	for _, answer := range []string{"", "{}", "null", "[", empty, strings.Repeat("[", 5000)} {
		s.wants(answer, present(b, answer), 400)
	}
	s.wants("70 KiB", present(b, strings.Repeat("a", 70<<10)), 413)
}

func TestP2_CopiedPasskeyIsStopped(t *testing.T) {
	s := shared(t)
	ada := s.person()
	d := s.added(ada)
	d.key.Counter = 10
	s.needs("before the copy", d.signIn(s.browser()), 303)
	copied := *d
	copied.key.Counter = 5
	for _, thief := range []*device{&copied, &copied, d} {
		b := s.browser()
		s.refuses(b, "the copy, or the original after it", thief.signIn(b), 400)
	}
	s.recorded(1, audit.PasskeyStopped, ada.ID)
	b := s.signedIn(ada)
	s.wants("the passkeys", b.Get("/settings/passkeys"), 200, "This passkey may have been copied")
	s.wants("the events", b.Get("/settings/security"), 200, "Your passkey Laptop was blocked")
}

// answerWith returns the device's response to a challenge with this counter.
func (d *device) answerWith(counter uint32, b *browsertest.Browser) string {
	d.t.Helper()
	d.key.Counter = counter - 1
	return d.signed(d.options(b, "/login/passkey/options"))
}

func TestP2_SameCounterTwiceIsRefused(t *testing.T) {
	s := shared(t)
	ada := s.person()
	d := s.added(ada)
	browsers := []*browsertest.Browser{s.browser(), s.browser()}
	answers := []string{d.answerWith(7, browsers[0]), d.answerWith(7, browsers[1])}
	statuses := atOnce(2, func(i int) *browsertest.Page { return present(browsers[i], answers[i]) })
	// If the second request blocks the passkey before the first has made its session, both are refused.
	if statuses[303] > 1 || statuses[303]+statuses[400] != 2 {
		t.Errorf("%v", statuses)
	}
	s.recorded(1, audit.PasskeyStopped, ada.ID)
}

func TestP2_PasskeyWithoutCounterIsAccepted(t *testing.T) {
	s := shared(t)
	d := s.added(s.person())
	for range 2 {
		b := s.browser()
		s.wants("the counter 0", present(b, d.answerWith(0, b)), 303)
	}
}

func TestPasskey_DisabledUserLooksLikeUnknownPasskey(t *testing.T) {
	s := shared(t)
	ada := s.person()
	d, stranger := s.added(ada), newDevice(s)
	stranger.authenticator.Options.UserHandle = ada.ID[:]
	s.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, ada.ID)
	text := func(d *device) string {
		b := s.browser()
		page := d.signIn(b)
		s.refuses(b, "sign-in", page, 400)
		words, _, _ := strings.Cut(page.Text(), "Request id")
		return words
	}
	equal(t, "the pages", text(d), text(stranger))
}

func TestReauth_PasskeyOnlyForItsUser(t *testing.T) {
	s := shared(t)
	ada, bob := s.person(), s.person()
	hers, his := s.added(ada), s.added(bob)
	b, elsewhere := s.signedIn(ada), s.signedIn(ada)
	prove := func(d *device, asker *browsertest.Browser) *browsertest.Page {
		answer := d.signed(s.options(asker, "/login/again/passkey/options"))
		return b.Post("/login/again/passkey", url.Values{"credential": {answer}, "return": {"/settings/passkeys"}})
	}
	const confirm = "confirm your identity first"
	s.stale()
	s.wants("passkey of another user", prove(his, b), 303, "/login/again?")
	s.wants("its page", b.Get("/login/again?return=/settings/apps"), 200, "The passkey was not accepted")
	s.wants("still stale", b.Get("/settings/passkeys"), 200, confirm)
	s.wants("a challenge of another sign-in", prove(hers, elsewhere), 303, "/login/again?")
	s.wants("still stale", b.Get("/settings/passkeys"), 200, confirm)
	before := b.Cookies()
	s.wants("own passkey", prove(hers, b), 303, "/settings/passkeys")
	s.lacks("fresh", b.Get("/settings/passkeys"), confirm)
	s.hasEnded(before)
	s.recorded(1, audit.SignInProved, ada.ID)
}

// A device holds one passkey and signs with it, for the origin in party.
type device struct {
	*site
	authenticator virtualwebauthn.Authenticator
	key           virtualwebauthn.Credential
	party         virtualwebauthn.RelyingParty
}

func newDevice(s *site) *device {
	party := virtualwebauthn.RelyingParty{ID: "localhost", Name: "Almoner", Origin: s.url}
	return &device{s, virtualwebauthn.NewAuthenticator(), newPasskey(), party}
}

// options returns the options that a script gets from a path.
func (s *site) options(b *browsertest.Browser, path string) string {
	s.t.Helper()
	page := b.Post(path, nil)
	s.needs(path, page, http.StatusOK)
	header := page.Header.Get("Content-Type") + ", " + page.Header.Get("Cache-Control")
	equal(s.t, path, header, "application/json, no-store")
	return page.Body
}

// made returns the device's response to a request for a new passkey.
func (d *device) made(options string) string {
	d.t.Helper()
	asked, err := virtualwebauthn.ParseAttestationOptions(options)
	d.must(err)
	d.authenticator.Options.UserHandle = []byte(asked.UserID)
	return virtualwebauthn.CreateAttestationResponse(d.party, d.authenticator, d.key, *asked)
}

// signed returns the device's response to a challenge and increments its counter.
func (d *device) signed(options string) string {
	d.t.Helper()
	asked, err := virtualwebauthn.ParseAssertionOptions(options)
	d.must(err)
	d.key.Counter++
	return virtualwebauthn.CreateAssertionResponse(d.party, d.authenticator, d.key, *asked)
}

func (d *device) addTo(b *browsertest.Browser, name string) *browsertest.Page {
	d.t.Helper()
	answer := d.made(d.options(b, "/settings/passkeys/options"))
	return b.Post("/settings/passkeys", url.Values{"name": {name}, "credential": {answer}})
}

// added returns a device with a passkey of who.
func (s *site) added(who browsertest.Person) *device {
	s.t.Helper()
	d := newDevice(s)
	s.needs("adding a passkey", d.addTo(s.signedIn(who), "Laptop"), http.StatusSeeOther)
	return d
}

func (d *device) signIn(b *browsertest.Browser) *browsertest.Page {
	d.t.Helper()
	return present(b, d.signed(d.options(b, "/login/passkey/options")))
}

func present(b *browsertest.Browser, answer string) *browsertest.Page {
	return b.Post("/login/passkey", url.Values{"credential": {answer}, "return": {"/settings/apps"}})
}

// newPasskey returns a credential whose public key has its full length. The library drops leading zeros of a
// coordinate, which one key in 128 has; a real authenticator does not.
func newPasskey() virtualwebauthn.Credential {
	const inFull = 77 // bytes of COSE for two coordinates of 32 bytes
	for {
		if c := virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2); len(c.Key.AttestationData()) == inFull {
			return c
		}
	}
}

// Chromium sends the domain of an address in Punycode.
func TestChromium_Passkeys(t *testing.T) {
	s := shared(t)
	ada := s.personAt("ada-" + uuid.NewString()[:8] + "@münchen.example")
	c := openChromium(t, s)
	c.signIn(ada)
	c.open("/settings/security")
	c.press("a", "Manage passkeys")
	c.verifies(false)
	c.fill("passkey-name", "Work laptop")
	c.press("button", "Add passkey")
	c.sees("p", "No passkey was used. You can try again.")
	s.rows(0, "passkeys", "user_id = $1", ada.ID)
	c.verifies(true)
	c.press("button", "Add passkey")
	c.sees("div", "The passkey Work laptop was added.")
	made := c.key()
	if !made.IsResidentCredential || made.RpID != "localhost" || string(made.UserHandle) != string(ada.ID[:]) {
		t.Errorf("another kind of passkey: %v %q %x", made.IsResidentCredential, made.RpID, made.UserHandle)
	}
	c.fill("passkey-name", "The same again")
	c.press("button", "Add passkey")
	c.sees("p", "This device already has a passkey for your account.")

	c.signOut()
	c.press("button", "Sign in with a passkey")
	c.sees("p", ada.Email)
	used := c.key().SignCount
	// The sign-in page also asks for a passkey by itself: Chromium may have signed for it before the button.
	s.rows(1, "passkeys", "sign_count > $1 and sign_count <= $2 and user_id = $3", int64(made.SignCount), int64(used),
		ada.ID)

	c.open("/settings/passkeys")
	c.fill("passkey-name", "Phone")
	s.stale()
	c.press("button", "Add passkey")
	c.sees("h1", "Confirm your identity")
	c.open("/settings/passkeys")
	c.press("a", "Confirm your identity")
	c.sees("label", "Password")
	c.press("button", "Use a passkey")
	c.sees("h2", "Add a passkey")

	c.copyWithCounter(0) // before the sign-in page, where the browser may offer the passkey immediately
	c.signOut()
	c.press("button", "Sign in with a passkey")
	c.sees("strong", "This passkey has changed")
	s.recorded(1, audit.PasskeyStopped, ada.ID)
	c.signIn(ada)
	c.open("/settings/passkeys")
	c.sees("p", "This passkey may have been copied")
	c.press("summary", "Remove Work laptop")
	c.press("button", "Remove Work laptop")
	c.sees("div", "The passkey was removed.")
	s.rows(0, "passkeys", "user_id = $1", ada.ID)
	c.noFaults()
}

func TestChromium_OfferedPasskeySignsInByAutofill(t *testing.T) {
	s := shared(t)
	ada := s.person()
	c := openChromium(t, s)
	c.signIn(ada)
	c.open("/settings/user")
	c.sees("strong", "Add a passkey: Chrome on Linux")
	c.press("a", "Add a passkey")
	c.press("button", "Add passkey")
	c.sees("div", "The passkey Chrome on Linux was added.") // the suggested name
	c.open(passwordPage)
	c.press("summary", "Remove the password")
	c.press("button", "Remove my password")
	c.sees("div", "Your password was removed.")
	c.signOut()
	c.fill("email", "a")
	c.sees("p", ada.Email)
	c.noFaults()
}

func TestChromium_NoPasskeyButtonWithoutScript(t *testing.T) {
	s := shared(t)
	c := openChromium(t, s)
	c.withoutScript()
	c.open("/login")
	c.sees("h1", "Sign in")
	c.do(chromedp.WaitNotVisible(words("button", "Sign in with a passkey")))
	c.signIn(s.person())
	c.open("/settings/passkeys")
	c.sees("p", "Adding a passkey requires JavaScript")
	c.do(chromedp.WaitNotVisible(chromedp.CSS("#passkey-name")))
	c.noFaults()
}
