package app_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	events "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A chromium is a real browser with a virtual authenticator that stores passkeys and verifies its user. It can only
// reach the local machine.
type chromium struct {
	t      *testing.T
	site   *site
	ctx    context.Context
	device webauthn.AuthenticatorID

	mu        sync.Mutex
	known     []string // origins other than the site's that it may open
	faults    []string // script errors, policy violations and requests to other origins
	requested []string // URLs that it has sent requests to, or begun to open
}

const browserTimeout = await.Long

// runningChromium is the browser of this package. Each test has a profile of its own in it.
var runningChromium = sync.OnceValues(func() (context.Context, error) {
	options := append(
		slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(localstore.FindChromium(os.Getenv("ALMONER_TEST_TOOLS"))),
		chromedp.ModifyCmdFunc(localstore.WithoutPriority),
		chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.WindowSize(1280, 800),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeBrowser := chromedp.NewContext(allocator)
	stopChromium = func() {
		_ = chromedp.Cancel(ctx)
		closeBrowser()
		stop()
	}
	return ctx, chromedp.Do(ctx)
})

// stopChromium stops the browser if a test has started it.
var stopChromium = func() {}

func openChromium(t *testing.T, s *site) *chromium {
	t.Helper()
	browser, err := runningChromium()
	s.must(err)
	window, closeWindow := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(func() {
		_ = chromedp.Cancel(window)
		closeWindow()
	})
	c := &chromium{t: t, site: s, ctx: window}
	s.must(chromedp.Listen(window, c.listen))
	focused := emulation.SetFocusEmulationEnabledParams{Enabled: true} // a window in the background has no focus
	_, err = chromedp.Call(window, emulation.SetFocusEmulationEnabled, focused)
	s.must(err)
	_, err = chromedp.Call(window, webauthn.Enable, webauthn.EnableParams{})
	s.must(err)
	made, err := chromedp.Call(window, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{
		Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol:                    webauthn.AuthenticatorProtocolCtap2,
			Transport:                   webauthn.AuthenticatorTransportInternal,
			HasResidentKey:              true,
			HasUserVerification:         true,
			IsUserVerified:              true,
			AutomaticPresenceSimulation: true,
		},
	})
	s.must(err)
	c.device = made.AuthenticatorID
	return c
}

func (c *chromium) listen(event any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		c.requested = append(c.requested, e.Request.URL)
		allowed := func(address string) bool { return strings.HasPrefix(e.Request.URL, address) }
		if !slices.ContainsFunc(append([]string{c.site.url + "/", "data:"}, c.known...), allowed) {
			c.faults = append(c.faults, "a request to "+e.Request.URL)
		}
	case *events.EventEntryAdded:
		refusal := strings.Contains(e.Entry.Text, "the server responded with a status of 4") // which a test may provoke
		if (e.Entry.Level == events.EntryLevelError || e.Entry.Source == events.EntrySourceSecurity) && !refusal {
			c.faults = append(c.faults, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		c.faults = append(c.faults, e.ExceptionDetails.Text)
	}
}

// noFaults requires that the browser has reported no fault.
func (c *chromium) noFaults() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) > 0 {
		c.t.Errorf("the browser reports:\n%s", strings.Join(c.faults, "\n"))
	}
}

func (c *chromium) do(steps ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, browserTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		at, _ := chromedp.Run(c.ctx, chromedp.Location())
		text, _ := chromedp.Run(c.ctx, chromedp.Text(chromedp.CSS("body")))
		c.t.Fatalf("%v at %s\n%s", err, at, text)
	}
}

// withoutScript switches JavaScript off for the pages opened afterwards.
func (c *chromium) withoutScript() {
	c.t.Helper()
	disabled := emulation.SetScriptExecutionDisabledParams{Value: true}
	_, err := chromedp.Call(c.ctx, emulation.SetScriptExecutionDisabled, disabled)
	c.site.must(err)
}

// open opens a page of the site.
func (c *chromium) open(path string) { c.t.Helper(); c.do(chromedp.Navigate(c.site.url + path)) }

func words(element, text string) chromedp.Search {
	return chromedp.Search(`//` + element + `[contains(normalize-space(.), "` + text + `")]`)
}

// press clicks the element with this text.
func (c *chromium) press(element, text string) {
	c.t.Helper()
	c.do(chromedp.Click(chromedp.Search(`//`+element+`[normalize-space(.)="`+text+`"]`), chromedp.NodeVisible))
}

// sees waits until an element with this text is visible.
func (c *chromium) sees(element, text string) {
	c.t.Helper()
	c.do(chromedp.WaitVisible(words(element, text)))
}

// fill replaces the text of a field.
func (c *chromium) fill(id, text string) {
	c.t.Helper()
	c.do(
		chromedp.Clear(chromedp.CSS("#"+id), chromedp.NodeVisible),
		chromedp.SendKeys(chromedp.CSS("#"+id), text, chromedp.NodeVisible),
	)
}

// signIn signs in by password. The authenticator does not answer meanwhile: autofill would use its passkey.
func (c *chromium) signIn(who browsertest.Person) {
	c.t.Helper()
	c.present(false)
	defer c.present(true)
	c.open("/login")
	c.fill("email", who.Email)
	c.fill("password", browsertest.Password)
	c.press("button", "Sign in")
	c.sees("h2", "Workspaces")
}

func (c *chromium) signOut() {
	c.t.Helper()
	c.press("button", "Sign out")
	c.sees("h1", "Sign in")
}

// key returns the only passkey of the authenticator.
func (c *chromium) key() *webauthn.Credential {
	c.t.Helper()
	held, err := chromedp.Call(c.ctx, webauthn.GetCredentials, webauthn.GetCredentialsParams{AuthenticatorID: c.device})
	c.site.must(err)
	if len(held.Credentials) != 1 {
		c.t.Fatalf("the device holds %d passkeys", len(held.Credentials))
	}
	return held.Credentials[0]
}

// copyWithCounter replaces the passkey by a copy with this counter. Older versions of Chromium cannot change the
// counter of a passkey.
func (c *chromium) copyWithCounter(counter float64) {
	c.t.Helper()
	held := c.key()
	_, err := chromedp.Call(c.ctx, webauthn.RemoveCredential, webauthn.RemoveCredentialParams{
		AuthenticatorID: c.device, CredentialID: held.CredentialID,
	})
	c.site.must(err)
	_, err = chromedp.Call(c.ctx, addCredential, map[string]any{
		"authenticatorId": c.device,
		"credential": map[string]any{
			"credentialId":         held.CredentialID,
			"isResidentCredential": held.IsResidentCredential,
			"rpId":                 held.RpID,
			"privateKey":           held.PrivateKey,
			"userHandle":           held.UserHandle,
			"signCount":            counter,
		},
	})
	c.site.must(err)
}

// addCredential sends the fields that every release of Chromium accepts. webauthn.Credential always sends the fields
// of extensions too, and some releases refuse these for an authenticator without the extension.
var addCredential = cdp.Command[map[string]any, cdp.Empty]{Method: webauthn.CommandAddCredential}

// verifies sets whether the authenticator verifies its user.
func (c *chromium) verifies(user bool) {
	c.t.Helper()
	verified := webauthn.SetUserVerifiedParams{AuthenticatorID: c.device, IsUserVerified: user}
	_, err := chromedp.Call(c.ctx, webauthn.SetUserVerified, verified)
	c.site.must(err)
}

// present sets whether a user confirms each request at the authenticator.
func (c *chromium) present(confirms bool) {
	c.t.Helper()
	present := webauthn.SetAutomaticPresenceSimulationParams{AuthenticatorID: c.device, Enabled: confirms}
	_, err := chromedp.Call(c.ctx, webauthn.SetAutomaticPresenceSimulation, present)
	c.site.must(err)
}
