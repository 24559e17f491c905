package app_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/descope/virtualwebauthn"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/passkey"
)

func withPasskeys(c *app.Config) { c.Passkeys = true }

// A device holds one passkey and answers for it, at whatever origin it is told that it is.
type device struct {
	t             *testing.T
	site          *site
	authenticator virtualwebauthn.Authenticator
	key           virtualwebauthn.Credential
	party         virtualwebauthn.RelyingParty
}

func newDevice(s *site) *device {
	return &device{
		t: s.t, site: s, authenticator: virtualwebauthn.NewAuthenticator(), key: virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2),
		party: virtualwebauthn.RelyingParty{ID: "localhost", Name: "Almoner", Origin: s.url},
	}
}

// options is what a script gets from an address.
func options(t *testing.T, b *browsertest.Browser, path string) string {
	t.Helper()
	page := b.Post(path, nil)
	if page.Status != http.StatusOK || page.Header.Get("Content-Type") != "application/json" || page.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s: %d %v %s", path, page.Status, page.Header, page.Body)
	}
	return page.Body
}

// made is the device's answer to a request for a new passkey.
func (d *device) made(options string) string {
	d.t.Helper()
	asked, err := virtualwebauthn.ParseAttestationOptions(options)
	d.site.must(err)
	d.authenticator.Options.UserHandle = []byte(asked.UserID)
	return virtualwebauthn.CreateAttestationResponse(d.party, d.authenticator, d.key, *asked)
}

// signed is the device's answer to a challenge. Its counter goes up.
func (d *device) signed(options string) string {
	d.t.Helper()
	asked, err := virtualwebauthn.ParseAssertionOptions(options)
	d.site.must(err)
	d.key.Counter++
	return virtualwebauthn.CreateAssertionResponse(d.party, d.authenticator, d.key, *asked)
}

func (d *device) addTo(b *browsertest.Browser, name string) *browsertest.Page {
	d.t.Helper()
	answer := d.made(options(d.t, b, "/settings/passkeys/options"))
	return b.Post("/settings/passkeys", url.Values{"name": {name}, "credential": {answer}})
}

// added is a device with a passkey of who.
func (s *site) added(who browsertest.Person) *device {
	s.t.Helper()
	d := newDevice(s)
	if page := d.addTo(s.signedIn(who), "Laptop"); page.Status != http.StatusSeeOther {
		s.t.Fatalf("not added: %d %s", page.Status, page.Text())
	}
	return d
}

func (d *device) signIn(b *browsertest.Browser) *browsertest.Page {
	d.t.Helper()
	return present(b, d.signed(options(d.t, b, "/login/passkey/options")))
}

func present(b *browsertest.Browser, answer string) *browsertest.Page {
	return b.Post("/login/passkey", url.Values{"credential": {answer}, "return": {"/settings/apps"}})
}

func TestSomebodyAddsAPasskeyAndSignsInWithIt(t *testing.T) {
	s := serve(t, withPasskeys)
	ada := s.person()
	d := newDevice(s)
	b := s.signedIn(ada)
	if page := d.addTo(b, "  Work laptop "); page.Status != http.StatusSeeOther || page.Location() != "/settings/passkeys" {
		t.Fatalf("adding: %d %q %s", page.Status, page.Location(), page.Text())
	}
	if page := b.Get("/settings/passkeys"); !page.Says("The passkey Work laptop is added.") || !page.Says("not used yet") {
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
	if !other.Get("/settings/passkeys").Says("last used") {
		t.Error("its use is not shown")
	}
	if n := s.count(`select count(*) from account.sign_ins where user_id = $1 and method = 'passkey'`, ada.ID); n != 2 {
		t.Errorf("%d sign-ins by passkey", n)
	}
	if s.events(ada.ID, "passkey.added") != 1 || s.events(ada.ID, "sign_in.succeeded") != 3 {
		t.Error("the audit log lacks an event")
	}
}

func TestASignInByPasskeyHasASessionOfItsOwn(t *testing.T) {
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
		t.Error("the session from before the sign-in still counts")
	}
	if !b.Get("/settings/user").Says(ada.Email) {
		t.Error("somebody else is signed in")
	}
}

func TestP1AnAnswerIsGoodOnce(t *testing.T) {
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
		t.Error("a replay is taken for a copy, so that anybody's retry stops a passkey")
	}
}

func TestP1AnAnswerIsGoodOnceEvenWhenItWasBad(t *testing.T) {
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

func TestP1AnAnswerIsGoodForFiveMinutes(t *testing.T) {
	s := serve(t, withPasskeys)
	d := s.added(s.person())
	b := s.browser()
	asked := options(t, b, "/login/passkey/options")
	if n := s.count(`select count(*) from account.ceremonies
		where expires_at between now() + interval '4 minutes 50 seconds' and now() + interval '5 minutes'`); n != 1 {
		t.Error("the challenge does not live for five minutes")
	}
	s.world.Exec(`update account.ceremonies set expires_at = expires_at - interval '5 minutes'`)
	if page := present(b, d.signed(asked)); page.Status != http.StatusBadRequest {
		t.Errorf("late: %d", page.Status)
	}
	options(t, b, "/login/passkey/options")
	if n := s.count(`select count(*) from account.ceremonies`); n != 1 {
		t.Errorf("%d ceremonies are kept: the one that is over was not swept", n)
	}
}

func TestP1AnAnswerIsGoodAtTheBrowserThatAsked(t *testing.T) {
	s := serve(t, withPasskeys)
	d := s.added(s.person())
	mine, thief := s.browser(), s.browser()
	answer := d.signed(options(t, mine, "/login/passkey/options"))
	if page := present(thief, answer); page.Status != http.StatusBadRequest {
		t.Errorf("a browser that asked for nothing: %d", page.Status)
	}
	options(t, thief, "/login/passkey/options")
	if page := present(thief, answer); page.Status != http.StatusBadRequest || inside(thief) {
		t.Errorf("another browser: %d", page.Status)
	}
	if page := present(mine, answer); page.Status != http.StatusSeeOther {
		t.Errorf("C4: the stranger has used it up: %d", page.Status)
	}
}

func TestAChallengeOfOnePurposeIsNoneOfAnother(t *testing.T) {
	s := serve(t, withPasskeys)
	ada := s.person()
	d := s.added(ada)
	b := s.signedIn(ada)
	again := options(t, b, "/login/again/passkey/options")
	options(t, b, "/login/passkey/options") // gives the browser its cookie
	if page := present(b, d.signed(again)); page.Status != http.StatusBadRequest {
		t.Errorf("a challenge for a new proof signs in: %d", page.Status)
	}
	signIn := options(t, b, "/login/passkey/options")
	page := b.Post("/login/again/passkey", url.Values{"credential": {d.signed(signIn)}})
	if !strings.HasPrefix(page.Location(), "/login/again?") {
		t.Errorf("a challenge for a sign-in is a new proof: %d %q", page.Status, page.Location())
	}
}

func TestAnAnswerThatIsNotQuiteRightIsRefused(t *testing.T) {
	s := serve(t, withPasskeys)
	for name, spoil := range map[string]func(*device){
		"another origin":        func(d *device) { d.party.Origin = "https://evil.example" },
		"another port":          func(d *device) { d.party.Origin = "http://localhost:1" },
		"a subdomain":           func(d *device) { d.party.Origin = strings.Replace(s.url, "localhost", "a.localhost", 1) },
		"another relying party": func(d *device) { d.party.ID = "evil.example" },
		"user not verified":     func(d *device) { d.authenticator.Options.UserNotVerified = true },
		"user not present":      func(d *device) { d.authenticator.Options.UserNotPresent = true },
		"nobody's handle":       func(d *device) { d.authenticator.Options.UserHandle = []byte("somebody else") },
		"no handle":             func(d *device) { d.authenticator.Options.UserHandle = nil },
		"another key":           func(d *device) { d.key.Key = virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2).Key },
		"unknown credential":    func(d *device) { d.key.ID = []byte("unknown") },
		"backup flag turned":    func(d *device) { d.authenticator.Options.BackupEligible = true },
	} {
		d := s.added(s.person())
		if page := d.signIn(s.browser()); page.Status != http.StatusSeeOther {
			t.Fatalf("%s: not good to begin with", name)
		}
		spoil(d)
		b := s.browser()
		page := d.signIn(b)
		if page.Status != http.StatusBadRequest || !page.Says("That passkey is not accepted") || inside(b) {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
}

func TestWhatIsNoAnswerIsRefused(t *testing.T) {
	s := serve(t, withPasskeys)
	b := s.browser()
	options(t, b, "/login/passkey/options")
	for _, answer := range []string{"", "{}", "null", "[", `{"id":"YQ","rawId":"YQ","type":"public-key","response":{}}`, strings.Repeat("[", 5000)} {
		if page := present(b, answer); page.Status != http.StatusBadRequest {
			t.Errorf("%.20q: %d", answer, page.Status)
		}
	}
	if page := present(b, strings.Repeat("a", 70<<10)); page.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("70 KiB: %d", page.Status)
	}
}

func TestP2ACopiedPasskeyIsRefusedFromThenOn(t *testing.T) {
	s := serve(t, withPasskeys)
	ada := s.person()
	d := s.added(ada)
	d.key.Counter = 10
	if page := d.signIn(s.browser()); page.Status != http.StatusSeeOther {
		t.Fatal("not good to begin with")
	}
	copied := *d
	copied.key.Counter = 5
	for name, thief := range map[string]*device{"the copy": &copied, "the copy again": &copied, "the original": d} {
		b := s.browser()
		if page := thief.signIn(b); page.Status != http.StatusBadRequest || inside(b) {
			t.Errorf("%s: %d", name, page.Status)
		}
		if name == "the original" {
			continue
		}
	}
	if n := s.events(ada.ID, "passkey.stopped"); n != 1 {
		t.Errorf("%d events say that it was stopped", n)
	}
	page := s.signedIn(ada).Get("/settings/passkeys")
	if !page.Says("It may have been copied") {
		t.Error("its owner is not told")
	}
}

func TestP2OfTwoAnswersWithOneCounterOneIsRefused(t *testing.T) {
	s := serve(t, withPasskeys)
	d := s.added(s.person())
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
	if statuses[http.StatusSeeOther] != 1 || statuses[http.StatusBadRequest] != 1 {
		t.Errorf("%v", statuses)
	}
}

func TestAPasskeyThatDoesNotCountIsNoCopy(t *testing.T) {
	s := serve(t, withPasskeys)
	d := s.added(s.person())
	for range 2 {
		b := s.browser()
		asked, err := virtualwebauthn.ParseAssertionOptions(options(t, b, "/login/passkey/options"))
		s.must(err)
		if page := present(b, virtualwebauthn.CreateAssertionResponse(d.party, d.authenticator, d.key, *asked)); page.Status != http.StatusSeeOther {
			t.Errorf("%d", page.Status)
		}
	}
}

func TestADisabledUserIsRefusedLikeAnUnknownPasskey(t *testing.T) {
	s := serve(t, withPasskeys)
	ada := s.person()
	d, stranger := s.added(ada), newDevice(s)
	stranger.authenticator.Options.UserHandle = ada.ID[:]
	s.world.Exec(`update account.users set disabled_at = now() where id = $1`, ada.ID)
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

func TestAddingAndRemovingNeedAFreshProof(t *testing.T) {
	s := serve(t, withPasskeys)
	ada := s.person()
	s.added(ada)
	b, d := s.signedIn(ada), newDevice(s)
	page := b.Get("/settings/passkeys")
	remove := page.Form("/settings/passkeys/remove")
	asked := options(t, b, "/settings/passkeys/options")
	s.stale()
	const ask = "/login/again?return=%2Fsettings%2Fpasskeys"
	var refusal struct{ Next string }
	answer := b.Post("/settings/passkeys/options", nil)
	s.must(json.Unmarshal([]byte(answer.Body), &refusal))
	if answer.Status != http.StatusForbidden || refusal.Next != ask {
		t.Errorf("options: %d %s", answer.Status, answer.Body)
	}
	if page := b.Post("/settings/passkeys", url.Values{"name": {"x"}, "credential": {d.made(asked)}}); page.Location() != ask {
		t.Errorf("adding: %d %q", page.Status, page.Location())
	}
	if page := b.Post("/settings/passkeys/remove", remove); page.Location() != ask {
		t.Errorf("removing: %d %q", page.Status, page.Location())
	}
	if n := s.count(`select count(*) from account.passkeys`); n != 1 {
		t.Errorf("%d passkeys", n)
	}
	if page := b.Get("/settings/passkeys"); !page.Says("confirm first that it is you") || page.Says("Remove Laptop") {
		t.Errorf("the page: %s", page.Text())
	}
	b.Get(ask).Send("/login/again", browsertest.Fields{"password": browsertest.Password})
	if page := b.Post("/settings/passkeys/remove", remove); page.Location() != "/settings/passkeys" {
		t.Errorf("removing after a new proof: %d %q", page.Status, page.Location())
	}
	if s.count(`select count(*) from account.passkeys`) != 0 || s.events(ada.ID, "passkey.removed") != 1 {
		t.Error("it is not removed")
	}
}

func TestAPasskeyIsAddedByTheSignInThatAskedOnce(t *testing.T) {
	s := serve(t, withPasskeys)
	ada, bob := s.person(), s.person()
	mine, elsewhere, bobs := s.signedIn(ada), s.signedIn(ada), s.signedIn(bob)
	d := newDevice(s)
	fields := url.Values{"name": {"Laptop"}, "credential": {d.made(options(t, mine, "/settings/passkeys/options"))}}
	for name, b := range map[string]*browsertest.Browser{"another session of hers": elsewhere, "somebody else": bobs} {
		if page := b.Post("/settings/passkeys", fields); page.Status != http.StatusBadRequest || !page.Says("was not added") {
			t.Errorf("%s: %d", name, page.Status)
		}
	}
	if page := s.browser().Post("/settings/passkeys", fields); !strings.HasPrefix(page.Location(), "/login?") {
		t.Errorf("nobody: %d %q", page.Status, page.Location())
	}
	if page := mine.Post("/settings/passkeys", fields); page.Status != http.StatusSeeOther {
		t.Errorf("the one who asked: %d", page.Status)
	}
	if page := mine.Post("/settings/passkeys", fields); page.Status != http.StatusBadRequest {
		t.Errorf("twice: %d", page.Status)
	}
	if page := d.addTo(bobs, "Hers"); page.Status != http.StatusBadRequest {
		t.Errorf("a credential that is somebody else's: %d", page.Status)
	}
	if n := s.count(`select count(*) from account.passkeys where user_id = $1`, ada.ID); n != 1 || s.count(`select count(*) from account.passkeys`) != 1 {
		t.Errorf("%d passkeys of hers", n)
	}
}

func TestAPasskeyIsAddedByAVerifiedUserAtOurOriginWithAName(t *testing.T) {
	s := serve(t, withPasskeys)
	b := s.signedIn(s.person())
	for name, spoil := range map[string]func(*device){
		"another origin":        func(d *device) { d.party.Origin = "https://evil.example" },
		"another relying party": func(d *device) { d.party.ID = "evil.example" },
		"user not verified":     func(d *device) { d.authenticator.Options.UserNotVerified = true },
	} {
		d := newDevice(s)
		spoil(d)
		if page := d.addTo(b, "Laptop"); page.Status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, page.Status)
		}
	}
	for _, name := range []string{"", "  ", strings.Repeat("é", passkey.MaxName+1), "two\nlines", "\xff"} {
		if page := newDevice(s).addTo(b, name); page.Status != http.StatusBadRequest || !page.Says("Enter a name") {
			t.Errorf("%q: %d", name, page.Status)
		}
	}
	if page := newDevice(s).addTo(b, strings.Repeat("é", passkey.MaxName)); page.Status != http.StatusSeeOther {
		t.Errorf("the longest name: %d", page.Status)
	}
}

func TestP3TheOnlyWayInIsNotRemoved(t *testing.T) {
	s := serve(t, withPasskeys)
	ada, bob := s.person(), s.person()
	first, others := s.added(ada), s.added(bob)
	b := s.signedIn(ada)
	s.world.Exec(`update account.users set password_hash = null where id = $1`, ada.ID)
	page := b.Get("/settings/passkeys").Send("/settings/passkeys/remove", nil)
	if page.Status != http.StatusConflict || !page.Says("You could not sign in without that passkey") {
		t.Errorf("the only one: %d %s", page.Status, page.Text())
	}
	newDevice(s).addTo(b, "Phone")
	if page := b.Get("/settings/passkeys").Send("/settings/passkeys/remove", nil); page.Status != http.StatusSeeOther {
		t.Errorf("one of two: %d", page.Status)
	}
	if page := first.signIn(s.browser()); page.Status != http.StatusBadRequest {
		t.Errorf("a removed one signs in: %d", page.Status)
	}
	hers := b.Get("/settings/passkeys").Form("/settings/passkeys/remove")
	hers.Set("id", idOf(s, others))
	b.Post("/settings/passkeys/remove", hers)
	if page := others.signIn(s.browser()); page.Status != http.StatusSeeOther {
		t.Error("somebody else's passkey was removed")
	}
}

func idOf(s *site, d *device) string {
	s.t.Helper()
	var id string
	s.must(s.world.Owner.QueryRow(s.t.Context(), `select id::text from account.passkeys where credential_id = $1`, d.key.ID).Scan(&id))
	return id
}

func TestP4AUserHasTwentyPasskeysAtMost(t *testing.T) {
	s := serve(t, withPasskeys)
	ada := s.person()
	b := s.signedIn(ada)
	s.world.Exec(`insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid, transports, backup_eligible, backed_up)
		select gen_random_uuid(), $1, 'one', ('c' || n)::bytea, '', 0, '', '{}', false, false from generate_series(1, 19) n`, ada.ID)
	statuses := map[int]int{}
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 3 {
		d := newDevice(s)
		answer := d.made(options(t, b, "/settings/passkeys/options"))
		all.Go(func() {
			page := b.Post("/settings/passkeys", url.Values{"name": {"x"}, "credential": {answer}})
			mu.Lock()
			defer mu.Unlock()
			statuses[page.Status]++
		})
	}
	all.Wait()
	if statuses[http.StatusSeeOther] != 1 || s.count(`select count(*) from account.passkeys`) != passkey.AtMost {
		t.Errorf("%v", statuses)
	}
	if !b.Get("/settings/passkeys").Says("as many passkeys as there may be") {
		t.Error("the page offers another one")
	}
}

func TestAFormOfAnotherSessionOrSiteRemovesNothing(t *testing.T) {
	s := serve(t, withPasskeys)
	ada := s.person()
	d := s.added(ada)
	b, elsewhere := s.signedIn(ada), s.signedIn(ada)
	form := elsewhere.Get("/settings/passkeys").Form("/settings/passkeys/remove")
	if page := b.Post("/settings/passkeys/remove", form); page.Status != http.StatusForbidden {
		t.Errorf("another session's form: %d", page.Status)
	}
	own := b.Get("/settings/passkeys").Form("/settings/passkeys/remove")
	b.Headers.Set("Origin", "https://evil.example")
	for path, fields := range map[string]url.Values{
		"/settings/passkeys/remove": own, "/settings/passkeys": {}, "/settings/passkeys/options": nil, "/login/passkey": {},
		"/login/passkey/options": nil, "/login/again/passkey": {}, "/login/again/passkey/options": nil, "/login/again": {},
	} {
		if page := b.Post(path, fields); page.Status != http.StatusForbidden {
			t.Errorf("%s from another site: %d", path, page.Status)
		}
	}
	if page := d.signIn(s.browser()); page.Status != http.StatusSeeOther {
		t.Error("it was removed")
	}
}

func TestAPasskeyIsANewProofForItsUserAlone(t *testing.T) {
	s := serve(t, withPasskeys)
	ada, bob := s.person(), s.person()
	hers, his := s.added(ada), s.added(bob)
	b, elsewhere := s.signedIn(ada), s.signedIn(ada)
	prove := func(d *device, asker *browsertest.Browser) string {
		answer := d.signed(options(t, asker, "/login/again/passkey/options"))
		return b.Post("/login/again/passkey", url.Values{"credential": {answer}, "return": {"/settings/passkeys"}}).Location()
	}
	fresh := func() bool { return !b.Get("/settings/passkeys").Says("confirm first") }
	s.stale()
	at := prove(his, b)
	if page := b.Get("/login/again?return=/settings/apps"); !page.Says("That passkey is not accepted") {
		t.Errorf("it does not say why: %s", page.Text())
	}
	if !strings.HasPrefix(at, "/login/again?") || fresh() {
		t.Errorf("somebody else's passkey: %q", at)
	}
	if at := prove(hers, elsewhere); !strings.HasPrefix(at, "/login/again?") || fresh() {
		t.Errorf("a challenge of another sign-in: %q", at)
	}
	before := b.Cookies()
	if at := prove(hers, b); at != "/settings/passkeys" || !fresh() {
		t.Errorf("her own: %q", at)
	}
	old := s.browser()
	old.SetCookies(before)
	if inside(old) {
		t.Error("the session from before the proof still counts")
	}
	if n := s.events(ada.ID, "sign_in.proved"); n != 1 {
		t.Errorf("%d events", n)
	}
}

func TestPasskeysAreAnOption(t *testing.T) {
	off, on := serve(t, func(*app.Config) {}), serve(t, withPasskeys)
	ada := off.person()
	b := off.signedIn(ada)
	for _, path := range []string{"/login/passkey/options", "/login/passkey", "/settings/passkeys/options", "/settings/passkeys/remove"} {
		if page := b.Post(path, nil); page.Status != http.StatusNotFound {
			t.Errorf("%s where it is off: %d", path, page.Status)
		}
	}
	page := off.browser().Get("/login")
	if strings.Contains(page.Body, "passkey") || strings.Contains(page.Header.Get("Content-Security-Policy"), "script-src") {
		t.Error("the sign-in page speaks of passkeys where they are off")
	}
	if b.Get("/settings/security").Says("Passkeys") {
		t.Error("the settings speak of passkeys where they are off")
	}
	page = on.browser().Get("/login")
	policy := page.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "script-src 'self'") || !strings.Contains(policy, "connect-src 'self'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy of the sign-in page: %s", policy)
	}
	if policy := on.browser().Get("/nothing").Header.Get("Content-Security-Policy"); strings.Contains(policy, "script-src") {
		t.Errorf("policy of another page: %s", policy)
	}
	if !on.signedIn(on.person()).Get("/settings/security").Says("Manage passkeys") {
		t.Error("the settings do not lead to passkeys")
	}
}

func TestNoSecretOfAPasskeyIsStoredOrLogged(t *testing.T) {
	s := serve(t, withPasskeys)
	d := s.added(s.person())
	b := s.browser()
	asked := options(t, b, "/login/passkey/options")
	parsed, err := virtualwebauthn.ParseAssertionOptions(asked)
	s.must(err)
	challenge := base64.RawURLEncoding.EncodeToString(parsed.Challenge)
	if n := s.count(`select count(*) from account.ceremonies where secret_hash = sha256($1) and binding_hash <> sha256($1)`, []byte(challenge)); n != 1 {
		t.Error("a ceremony is not found by the hash of its challenge")
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
