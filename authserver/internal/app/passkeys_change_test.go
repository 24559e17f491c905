package app_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

func TestPasskeys_ChangesNeedRecentAuthentication(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada := s.person()
	s.added(ada)
	b, d := s.signedIn(ada), newDevice(s)
	s.usedSecondFactor(ada)
	page := b.Get("/settings/passkeys")
	remove := page.Form("/settings/passkeys/remove")
	creation := options(t, b, "/settings/passkeys/options")
	s.stale()
	const reauthPath = "/login/again?return=%2Fsettings%2Fpasskeys"
	var refusal struct{ Next string }
	answer := b.Post("/settings/passkeys/options", nil)
	s.must(json.Unmarshal([]byte(answer.Body), &refusal))
	if answer.Status != http.StatusForbidden || refusal.Next != reauthPath {
		t.Errorf("options: %d %s", answer.Status, answer.Body)
	}
	if page := b.Post("/settings/passkeys", url.Values{
		"name":       {"x"},
		"credential": {d.made(creation)},
	}); page.Location() != reauthPath {
		t.Errorf("adding: %d %q", page.Status, page.Location())
	}
	if page := b.Post("/settings/passkeys/remove", remove); page.Location() != reauthPath {
		t.Errorf("removing: %d %q", page.Status, page.Location())
	}
	if n := s.count(`select count(*) from account.passkeys`); n != 1 {
		t.Errorf("%d passkeys", n)
	}
	if page := b.Get("/settings/passkeys"); !page.HasText("confirm your identity first") ||
		page.HasText("Remove Laptop") {
		t.Errorf("the page: %s", page.Text())
	}
	b.Get(reauthPath).Send("/login/again", browsertest.Fields{"password": browsertest.Password})
	if page := b.Post("/settings/passkeys/remove", remove); page.Location() != "/settings/passkeys" {
		t.Errorf("removing after a new proof: %d %q", page.Status, page.Location())
	}
	if s.count(`select count(*) from account.passkeys`) != 0 || s.events(ada.ID, audit.PasskeyRemoved) != 1 {
		t.Error("the passkey was not removed")
	}
}

func TestAddPasskey_OnlyOnceAndInTheSameSignIn(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada, bob := s.person(), s.person()
	mine, elsewhere, bobs := s.signedIn(ada), s.signedIn(ada), s.signedIn(bob)
	d := newDevice(s)
	fields := url.Values{"name": {"Laptop"}, "credential": {d.made(options(t, mine, "/settings/passkeys/options"))}}
	for name, b := range map[string]*browsertest.Browser{"another session of hers": elsewhere, "another user": bobs} {
		if page := b.Post("/settings/passkeys", fields); page.Status != http.StatusBadRequest ||
			!page.HasText("was not added") {
			t.Errorf("%s: %d", name, page.Status)
		}
	}
	if page := s.browser().Post("/settings/passkeys", fields); !strings.HasPrefix(page.Location(), "/login?") {
		t.Errorf("signed out: %d %q", page.Status, page.Location())
	}
	if page := mine.Post("/settings/passkeys", fields); page.Status != http.StatusSeeOther {
		t.Errorf("the sign-in with the challenge: %d", page.Status)
	}
	if page := mine.Post("/settings/passkeys", fields); page.Status != http.StatusBadRequest {
		t.Errorf("twice: %d", page.Status)
	}
	if page := d.addTo(bobs, "Hers"); page.Status != http.StatusBadRequest {
		t.Errorf("a credential of another user: %d", page.Status)
	}
	if n := s.count(`select count(*) from account.passkeys where user_id = $1`, ada.ID); n != 1 ||
		s.count(`select count(*) from account.passkeys`) != 1 {
		t.Errorf("%d passkeys of hers", n)
	}
}

func TestAddPasskey_ChecksOriginUserAndName(t *testing.T) {
	t.Parallel()
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
	for name, refusal := range map[string]string{
		"":                                     "Enter a name.",
		"  ":                                   "Enter a name.",
		strings.Repeat("é", passkey.MaxName+1): "Must have at most 60 characters.",
		"two\nlines":                           "Must be a single line",
		"\xff":                                 "Must be valid UTF-8 text.",
	} {
		if page := newDevice(s).addTo(b, name); page.Status != http.StatusBadRequest || !page.HasText(refusal) {
			t.Errorf("%q: %d %s", name, page.Status, page.Text())
		}
	}
	if page := newDevice(s).addTo(b, strings.Repeat("é", passkey.MaxName)); page.Status != http.StatusSeeOther {
		t.Errorf("the longest name: %d", page.Status)
	}
}

func TestP3_LastSignInMethodIsNotRemoved(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada, bob := s.person(), s.person()
	first, others := s.added(ada), s.added(bob)
	b := s.signedIn(ada)
	s.usedSecondFactor(ada)
	s.fixture.Exec(`update account.users set password_hash = null where id = $1`, ada.ID)
	page := b.Get("/settings/passkeys").Send("/settings/passkeys/remove", nil)
	if page.Status != http.StatusConflict || !page.HasText("You need this passkey to sign in") {
		t.Errorf("the only one: %d %s", page.Status, page.Text())
	}
	// A link to a provider that the deployment no longer has does not sign the user in.
	s.fixture.Exec(
		`insert into account.identities (issuer, subject, user_id) values ('https://former.example', 'ada', $1)`,
		ada.ID,
	)
	if page := b.Get("/settings/passkeys").Send("/settings/passkeys/remove", nil); page.Status != http.StatusConflict {
		t.Errorf("the only one that still counts: %d", page.Status)
	}
	newDevice(s).addTo(b, "Phone")
	if page := b.Get("/settings/passkeys").Send("/settings/passkeys/remove", nil); page.Status != http.StatusSeeOther {
		t.Errorf("one of two: %d", page.Status)
	}
	if page := first.signIn(s.browser()); page.Status != http.StatusBadRequest {
		t.Errorf("a removed one signs in: %d", page.Status)
	}
	own := b.Get("/settings/passkeys").Form("/settings/passkeys/remove")
	own.Set("id", idOf(s, others))
	b.Post("/settings/passkeys/remove", own)
	if page := others.signIn(s.browser()); page.Status != http.StatusSeeOther {
		t.Error("the passkey of another user was removed")
	}
}

func TestP4_UserHasNoMoreThanTwentyPasskeys(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada := s.person()
	b := s.signedIn(ada)
	s.fixture.Exec(
		`insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid,
		transports, backup_eligible, backed_up)
		select gen_random_uuid(), $1, 'one', ('c' || n)::bytea, '', 0, '', '{}', false, false
		from generate_series(1, 19) n`,
		ada.ID,
	)
	s.usedSecondFactor(ada)
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
	if statuses[http.StatusSeeOther] != 1 || s.count(`select count(*) from account.passkeys`) != passkey.MaxPerUser {
		t.Errorf("%v", statuses)
	}
	if !b.Get("/settings/passkeys").HasText("the maximum number of passkeys") {
		t.Error("the page offers another one")
	}
}

func TestRemovePasskey_OtherSessionOrSiteIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	ada := s.person()
	d := s.added(ada)
	b, elsewhere := s.signedIn(ada), s.signedIn(ada)
	s.usedSecondFactor(ada)
	form := elsewhere.Get("/settings/passkeys").Form("/settings/passkeys/remove")
	if page := b.Post("/settings/passkeys/remove", form); page.Status != http.StatusForbidden {
		t.Errorf("another session's form: %d", page.Status)
	}
	own := b.Get("/settings/passkeys").Form("/settings/passkeys/remove")
	b.Headers.Set("Origin", "https://evil.example")
	for path, fields := range map[string]url.Values{
		"/settings/passkeys/remove":    own,
		"/settings/passkeys":           {},
		"/settings/passkeys/options":   nil,
		"/login/passkey":               {},
		"/login/passkey/options":       nil,
		"/login/again/passkey":         {},
		"/login/again/passkey/options": nil,
		"/login/again":                 {},
	} {
		if page := b.Post(path, fields); page.Status != http.StatusForbidden {
			t.Errorf("%s from another site: %d", path, page.Status)
		}
	}
	if page := d.signIn(s.browser()); page.Status != http.StatusSeeOther {
		t.Error("the passkey was removed")
	}
}

func TestPasskeys_AreOptional(t *testing.T) {
	t.Parallel()
	off, on := serve(t, func(*app.Config) {}), serve(t, withPasskeys)
	ada := off.person()
	b := off.signedIn(ada)
	for _, path := range []string{
		"/login/passkey/options",
		"/login/passkey",
		"/settings/passkeys/options",
		"/settings/passkeys/remove",
	} {
		if page := b.Post(path, nil); page.Status != http.StatusNotFound {
			t.Errorf("%s where it is off: %d", path, page.Status)
		}
	}
	page := off.browser().Get("/login")
	if strings.Contains(page.Body, "passkey") ||
		strings.Contains(page.Header.Get("Content-Security-Policy"), "script-src") {
		t.Error("the sign-in page mentions passkeys although they are off")
	}
	if b.Get("/settings/security").HasText("Passkeys") {
		t.Error("the settings mention passkeys although they are off")
	}
	page = on.browser().Get("/login")
	policy := page.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "script-src 'self'") || !strings.Contains(policy, "connect-src 'self'") ||
		strings.Contains(policy, "unsafe") {
		t.Errorf("policy of the sign-in page: %s", policy)
	}
	if policy := on.browser().Get("/nothing").Header.Get("Content-Security-Policy"); strings.Contains(
		policy,
		"script-src",
	) {
		t.Errorf("policy of another page: %s", policy)
	}
	if !on.signedIn(on.person()).Get("/settings/security").HasText("Manage passkeys") {
		t.Error("the settings do not lead to passkeys")
	}
}
