package harness

import (
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
)

// Scheme sets the colour scheme that the browser prefers: "light" or "dark".
func (b *Browser) Scheme(scheme string) {
	b.t.Helper()
	parameters := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}
	if _, err := chromedp.Call(b.window, emulation.SetEmulatedMedia, parameters); err != nil {
		b.t.Fatalf("set the scheme: %v", err)
	}
}

// TransferSize returns the number of bytes transferred for the page and its files.
func (b *Browser) TransferSize() int {
	b.t.Helper()
	return Evaluate[int](b, `["navigation", "resource"].flatMap(kind => performance.getEntriesByType(kind))
		.reduce((sum, entry) => sum + entry.transferSize, 0)`)
}

// Overflow returns by how many pixels the page is wider than the screen.
func (b *Browser) Overflow() int {
	b.t.Helper()
	return Evaluate[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`)
}

// TimeZone sets the time zone of the pages, like Europe/London.
func (b *Browser) TimeZone(name string) {
	b.t.Helper()
	parameters := emulation.SetTimezoneOverrideParams{TimezoneID: name}
	if _, err := chromedp.Call(b.window, emulation.SetTimezoneOverride, parameters); err != nil {
		b.t.Fatalf("set the time zone: %v", err)
	}
}

// An Authenticator is a device of a browser that holds passkeys.
type Authenticator struct {
	b  *Browser
	id webauthn.AuthenticatorID
}

// AddAuthenticator adds a device that creates passkeys and signs in with them. The device verifies its user without a
// dialog.
func (b *Browser) AddAuthenticator() Authenticator {
	b.t.Helper()
	_, err := chromedp.Call(b.window, webauthn.Enable, webauthn.EnableParams{})
	if err != nil {
		b.t.Fatalf("add an authenticator: %v", err)
	}
	added, err := chromedp.Call(b.window, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{
		Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol:                    webauthn.AuthenticatorProtocolCtap2,
			Transport:                   webauthn.AuthenticatorTransportInternal,
			HasResidentKey:              true,
			HasUserVerification:         true,
			IsUserVerified:              true,
			AutomaticPresenceSimulation: true,
		},
	})
	if err != nil {
		b.t.Fatalf("add an authenticator: %v", err)
	}
	return Authenticator{b, added.AuthenticatorID}
}

// Answers sets whether the device responds to requests, as if its user touched it. Otherwise requests wait.
func (a Authenticator) Answers(answers bool) {
	a.b.t.Helper()
	parameters := webauthn.SetAutomaticPresenceSimulationParams{AuthenticatorID: a.id, Enabled: answers}
	if _, err := chromedp.Call(a.b.window, webauthn.SetAutomaticPresenceSimulation, parameters); err != nil {
		a.b.t.Fatalf("set up an authenticator: %v", err)
	}
}

// Remove removes the device with its passkeys.
func (a Authenticator) Remove() {
	a.b.t.Helper()
	parameters := webauthn.RemoveVirtualAuthenticatorParams{AuthenticatorID: a.id}
	if _, err := chromedp.Call(a.b.window, webauthn.RemoveVirtualAuthenticator, parameters); err != nil {
		a.b.t.Fatalf("remove an authenticator: %v", err)
	}
}
