package app_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
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
	page := b.Get(keysPage)
	s.wants("the page", page, 200, "confirm your identity first")
	s.lacks("the page", page, "Remove Laptop")
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
	page := off.browser().Get("/login")
	omits(t, "the sign-in page where passkeys are off", page.Body+page.Header.Get(policy), "passkey", "script-src")
	off.lacks("the settings where it is off", b.Get("/settings/security"), "Passkeys")
	allows := on.browser().Get("/login").Header.Get(policy)
	contains(t, "the policy of the sign-in page", allows, "script-src 'self'", "connect-src 'self'")
	omits(t, "the policy of the sign-in page", allows, "unsafe")
	omits(t, "the policy of another page", on.browser().Get("/nothing").Header.Get(policy), "script-src")
	on.wants("the settings", on.signedIn(on.person()).Get("/settings/security"), 200, "Manage passkeys")
}

func TestPasskeys_AreOnByDefaultWhereBrowsersSupportThem(t *testing.T) {
	config, _, err := app.LoadConfig(environ("ALMONER_NOTICE", "0s"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "passkeys are on", config.Passkeys, true)
	at127 := own(t, func(c *app.Config) { c.AppURL = strings.Replace(c.AppURL, "localhost", "127.0.0.1", 1) })
	for host, s := range map[string]*site{"localhost": withoutMail(t).forTest(t), "127.0.0.1": at127} {
		page := s.browser().Get("/login")
		for _, text := range []string{"Sign in with a passkey", `autocomplete="username webauthn"`} {
			equal(t, host+" has "+text, strings.Contains(page.Body, text), host == "localhost")
		}
		s.wants(host, page, 200)
	}
}
