package app_test

import (
	"net/http"
	"net/url"

	"github.com/descope/virtualwebauthn"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

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
