package harness

import (
	"context"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// Keys without a printable character.
const (
	TabKey   = kb.Tab
	EnterKey = kb.Enter
)

// Screens that pages must fit: a laptop, a phone, and the narrowest phone in use.
var (
	Laptop    = Screen{1280, 800}
	Telephone = Screen{390, 844}
	Narrowest = Screen{360, 640}
)

// A Screen is a size in CSS pixels.
type Screen struct{ Width, Height int64 }

// A Browser is a real Chromium browser. Elements are named by CSS selectors. It can reach only this machine.
type Browser struct {
	t      testing.TB
	window context.Context

	mu         sync.Mutex
	requested  []string
	complaints []string
}

const browserTimeout = await.Long

// Browser opens a window with an empty profile. The names are host names that resolve to this machine.
func (p *Product) Browser(t testing.TB, screen Screen, names ...string) *Browser {
	t.Helper()
	var window context.Context
	var closeWindow context.CancelFunc
	if len(names) == 0 {
		browser, err := sharedBrowser()
		if err != nil {
			t.Fatalf("start a browser: %v", err)
		}
		window, closeWindow = chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	} else {
		own, stop := chromedp.NewExecAllocator(context.Background(), browserOptions(names...)...)
		t.Cleanup(stop)
		window, closeWindow = chromedp.NewContext(own)
	}
	b := &Browser{t: t, window: window}
	t.Cleanup(func() {
		_ = chromedp.Cancel(window)
		closeWindow()
	})
	if err := chromedp.Listen(window, b.listen); err != nil {
		t.Fatalf("start a browser: %v", err)
	}
	if err := chromedp.Do(window, chromedp.EmulateViewport(screen.Width, screen.Height)); err != nil {
		t.Fatalf("start a browser: %v", err)
	}
	focused := emulation.SetFocusEmulationEnabledParams{Enabled: true}
	if _, err := chromedp.Call(window, emulation.SetFocusEmulationEnabled, focused); err != nil {
		t.Fatalf("start a browser: %v", err)
	}
	return b
}

// browserOptions returns the options of a browser in which the names are host names of this machine.
func browserOptions(names ...string) []chromedp.ExecAllocatorOption {
	rules := "MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"
	for _, name := range names {
		rules = "MAP " + name + " 127.0.0.1, " + rules
	}
	return append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(localstore.FindChromium(os.Getenv("ALMONER_TEST_TOOLS"))),
		chromedp.ModifyCmdFunc(localstore.WithoutPriority), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true), chromedp.Flag("host-resolver-rules", rules))
}

// shared is the browser of the process. Each test has a profile of its own in it, because starting a browser takes
// seconds of processor time.
var shared struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

func sharedBrowser() (context.Context, error) {
	shared.once.Do(func() {
		allocator, stop := chromedp.NewExecAllocator(context.Background(), browserOptions()...)
		ctx, closeBrowser := chromedp.NewContext(allocator)
		shared.ctx, shared.err = ctx, chromedp.Do(ctx)
		shared.stop = func() {
			_ = chromedp.Cancel(ctx)
			closeBrowser()
			stop()
		}
	})
	return shared.ctx, shared.err
}

func stopSharedBrowser() {
	shared.once.Do(func() {})
	if shared.stop != nil {
		shared.stop()
	}
}

func (b *Browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requested = append(b.requested, e.Request.URL)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity {
			b.complaints = append(b.complaints, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Text)
	}
}

func (b *Browser) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.window, browserTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		at, _ := chromedp.Run(b.window, chromedp.Location())
		at, _, _ = strings.Cut(at, "?")
		b.t.Fatalf("%s at %s: %v", what, at, err)
	}
}

// WithoutScript disables JavaScript in pages that are opened later.
func (b *Browser) WithoutScript() {
	b.t.Helper()
	parameters := emulation.SetScriptExecutionDisabledParams{Value: true}
	if _, err := chromedp.Call(b.window, emulation.SetScriptExecutionDisabled, parameters); err != nil {
		b.t.Fatalf("switch JavaScript off: %v", err)
	}
}

// DelayResponses delays every later response, as a slow connection does. Requests are not delayed.
func (b *Browser) DelayResponses(late time.Duration) {
	b.t.Helper()
	b.connection(network.Conditions{Latency: float64(late.Milliseconds())})
}

// Offline ends the connection of the browser, or restores it.
func (b *Browser) Offline(offline bool) {
	b.t.Helper()
	b.connection(network.Conditions{Offline: offline})
}

// connection sets what the network does to every later request.
func (b *Browser) connection(c network.Conditions) {
	b.t.Helper()
	c.DownloadThroughput, c.UploadThroughput = -1, -1
	parameters := network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: []*network.Conditions{&c}}
	if _, err := chromedp.Call(b.window, network.EmulateNetworkConditionsByRule, parameters); err != nil {
		b.t.Fatalf("change the connection: %v", err)
	}
}

// Open opens a URL.
func (b *Browser) Open(address string) { b.t.Helper(); b.do("open", chromedp.Navigate(address)) }

// See waits until an element is visible.
func (b *Browser) See(element string) {
	b.t.Helper()
	b.do("see "+element, chromedp.WaitVisible(chromedp.CSS(element)))
}

// Leave waits until an element is no longer present.
func (b *Browser) Leave(element string) {
	b.t.Helper()
	b.do("leave "+element, chromedp.WaitNotPresent(chromedp.CSS(element)))
}

// Click clicks an element when it is visible.
func (b *Browser) Click(element string) {
	b.t.Helper()
	b.do("click "+element, chromedp.Click(chromedp.CSS(element), chromedp.NodeVisible))
}

// DoubleClick clicks an element twice in quick succession.
func (b *Browser) DoubleClick(element string) {
	b.t.Helper()
	b.do("click twice "+element, chromedp.DoubleClick(chromedp.CSS(element), chromedp.NodeVisible))
}

// Fill types into a field when it is visible.
func (b *Browser) Fill(element, text string) {
	b.t.Helper()
	b.do("fill in "+element, chromedp.SendKeys(chromedp.CSS(element), text, chromedp.NodeVisible))
}

// Press types on the keyboard into the focused element.
func (b *Browser) Press(keys string) { b.t.Helper(); b.do("press a key", chromedp.KeyEvent(keys)) }

const signInForm = `form[action="/login"]`

// SignIn signs in with the form on the page, and waits until the browser has left the page: the next one may have
// fields with the same names.
func (b *Browser) SignIn(email, password string) {
	b.t.Helper()
	b.SubmitSignIn(email, password)
	b.Leave(signInForm)
}

// SubmitSignIn fills in and submits the sign-in form on the page.
func (b *Browser) SubmitSignIn(email, password string) {
	b.t.Helper()
	b.Fill("#email", email)
	b.Fill("#password", password)
	b.Click(signInForm + " button")
}

// Evaluate evaluates a JavaScript expression in the page.
func Evaluate[T any](b *Browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.window, browserTimeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("evaluate JavaScript in the page: %v", err)
	}
	return value
}

// Text returns the visible text of the page with white space collapsed.
func (b *Browser) Text() string {
	b.t.Helper()
	return strings.Join(strings.Fields(Evaluate[string](b, `document.body.innerText`)), " ")
}

// Picture returns a screenshot of the viewport as PNG.
func (b *Browser) Picture() []byte {
	b.t.Helper()
	picture, err := chromedp.Run(b.window, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatalf("take a picture: %v", err)
	}
	return picture
}

// EndTransitions ends the transitions of the page: colours in the middle of one are not those of the page.
func (b *Browser) EndTransitions() {
	b.t.Helper()
	Evaluate[bool](b, `document.getAnimations().forEach(a => { a.finish() }) || true`)
}

// WholePicture returns a screenshot of the whole page as PNG.
func (b *Browser) WholePicture() []byte {
	b.t.Helper()
	picture, err := chromedp.Run(b.window, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatalf("take a picture: %v", err)
	}
	return picture
}

// Focused returns the label or text of the focused element, as a screen reader would begin.
func (b *Browser) Focused() string {
	b.t.Helper()
	return Evaluate[string](b, `(() => { const e = document.activeElement; if (!e || e === document.body) return "";
			return (e.getAttribute("aria-label") ||
				(e.labels && e.labels[0] && e.labels[0].textContent) ||
				e.textContent).trim() })()`)
}

// Hosts returns the hosts that the browser has sent requests to, without duplicates.
func (b *Browser) Hosts() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, address := range b.requested {
		if parsed, err := url.Parse(address); err == nil && parsed.Host != "" && !slices.Contains(out, parsed.Host) {
			out = append(out, parsed.Host)
		}
	}
	return out
}

// Complaints returns the errors on the browser's console, including blocked loads and policy violations.
func (b *Browser) Complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.complaints)
}
