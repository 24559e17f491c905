package harness

import (
	"context"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"github.com/almonerhq/almoner/e2e/axe"
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

// Show sets the size of the window and the colour scheme that the user prefers: "light" or "dark".
func (b *Browser) Show(screen Screen, colours string) {
	b.t.Helper()
	b.do("resize the window", chromedp.EmulateViewport(screen.Width, screen.Height))
	parameters := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}},
	}
	if _, err := chromedp.Call(b.window, emulation.SetEmulatedMedia, parameters); err != nil {
		b.t.Fatalf("prefer %s colours: %v", colours, err)
	}
}

// violationsScript runs axe-core and reports each element that violates a rule. It waits for the end of transitions,
// because they change colours. Contrast depends on the styles of an element and of its ancestors. Of the visible
// elements with text whose styles and ancestors' styles are equal, only the first is checked for contrast, because the
// API documentation has very many.
const violationsScript = `(async () => {
	for (const a of document.getAnimations()) a.finish();
	const styles = new Map([[null, ""]]), seen = new Set();
	for (const e of document.querySelectorAll("*")) {
		const s = getComputedStyle(e);
		const own = [s.color, s.backgroundColor, s.backgroundImage, s.opacity, s.fontSize, s.fontWeight, s.display];
		const all = styles.get(e.parentElement) + "/" + own;
		styles.set(e, all);
		const text = e.matches("input, select, textarea") ||
			[...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim());
		const shown = text && e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
			e.getBoundingClientRect().width > 1; // narrower text is for screen readers only
		e.toggleAttribute("data-contrast", shown && !seen.has(all));
		if (shown) seen.add(all);
	}
	axe.configure({ rules: [{ id: "color-contrast", selector: "[data-contrast]" }] });
	const result = await axe.run(document, { resultTypes: ["violations"] });
	return result.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.failureSummary + " " + n.html));
})()`

// Violations returns the violations that axe-core finds in the page.
func (b *Browser) Violations() []string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.window, browserTimeout)
	defer cancel()
	if !Evaluate[bool](b, `typeof axe !== "undefined"`) {
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](axe.Script+";true")); err != nil {
			b.t.Fatalf("load axe-core: %v", err)
		}
	}
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](violationsScript, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("run axe-core: %v", err)
	}
	return found
}
