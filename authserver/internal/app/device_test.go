package app_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/descope/virtualwebauthn"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

func withPasskeys(c *app.Config) { c.Passkeys = true }

// A device holds one passkey and signs with it, for the origin in party.
type device struct {
	t             *testing.T
	site          *site
	authenticator virtualwebauthn.Authenticator
	key           virtualwebauthn.Credential
	party         virtualwebauthn.RelyingParty
}

func newDevice(s *site) *device {
	return &device{
		t:             s.t,
		site:          s,
		authenticator: virtualwebauthn.NewAuthenticator(),
		key:           newPasskey(),
		party:         virtualwebauthn.RelyingParty{ID: "localhost", Name: "Almoner", Origin: s.url},
	}
}

// options returns the options that a script gets from a path.
func options(t *testing.T, b *browsertest.Browser, path string) string {
	t.Helper()
	page := b.Post(path, nil)
	if page.Status != http.StatusOK || page.Header.Get("Content-Type") != "application/json" ||
		page.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s: %d %v %s", path, page.Status, page.Header, page.Body)
	}
	return page.Body
}

// made returns the device's response to a request for a new passkey.
func (d *device) made(options string) string {
	d.t.Helper()
	asked, err := virtualwebauthn.ParseAttestationOptions(options)
	d.site.must(err)
	d.authenticator.Options.UserHandle = []byte(asked.UserID)
	return virtualwebauthn.CreateAttestationResponse(d.party, d.authenticator, d.key, *asked)
}

// signed returns the device's response to a challenge and increments its counter.
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

// added returns a device with a passkey of who.
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

func idOf(s *site, d *device) string {
	s.t.Helper()
	var id string
	s.must(
		s.fixture.Owner.QueryRow(s.t.Context(), `select id::text from account.passkeys
			where credential_id = $1`, d.key.ID).
			Scan(&id),
	)
	return id
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
