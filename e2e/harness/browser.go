package harness

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
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
	err := chromedp.Listen(window, b.listen)
	if err == nil {
		err = chromedp.Do(window, chromedp.EmulateViewport(screen.Width, screen.Height))
	}
	if err == nil {
		focused := emulation.SetFocusEmulationEnabledParams{Enabled: true}
		_, err = chromedp.Call(window, emulation.SetFocusEmulationEnabled, focused)
	}
	if err != nil {
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

// sharedBrowser is the browser of the process. Each test has a profile of its own in it, because starting a browser
// takes seconds of processor time.
var sharedBrowser = sync.OnceValues(func() (context.Context, error) {
	allocator, stop := chromedp.NewExecAllocator(context.Background(), browserOptions()...)
	ctx, closeBrowser := chromedp.NewContext(allocator)
	stopSharedBrowser = func() {
		_ = chromedp.Cancel(ctx)
		closeBrowser()
		stop()
	}
	return ctx, chromedp.Do(ctx)
})

// stopSharedBrowser stops the shared browser if a test has started it.
var stopSharedBrowser = func() {}

func (b *Browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity {
			b.complaints = append(b.complaints, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Text)
	}
}

// Do runs steps, and fails the test if one fails.
func (b *Browser) Do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.window, browserTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		at, _ := chromedp.Run(b.window, chromedp.Location())
		at, _, _ = strings.Cut(at, "?")
		b.t.Fatalf("%s at %s: %v", what, at, err)
	}
}

// Open opens a URL.
func (b *Browser) Open(address string) { b.t.Helper(); b.Do("open", chromedp.Navigate(address)) }

// See waits until an element is visible.
func (b *Browser) See(element string) {
	b.t.Helper()
	b.Do("see "+element, chromedp.WaitVisible(chromedp.CSS(element)))
}

// Leave waits until an element is no longer present.
func (b *Browser) Leave(element string) {
	b.t.Helper()
	b.Do("leave "+element, chromedp.WaitNotPresent(chromedp.CSS(element)))
}

// Click clicks an element when it is visible.
func (b *Browser) Click(element string) {
	b.t.Helper()
	b.Do("click "+element, chromedp.Click(chromedp.CSS(element), chromedp.NodeVisible))
}

// Fill puts text into a field when it is visible, at once, as a paste does.
func (b *Browser) Fill(element, text string) {
	b.t.Helper()
	insert := func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, input.InsertText, input.InsertTextParams{Text: text})
		return err
	}
	b.Do("fill in "+element, chromedp.Focus(chromedp.CSS(element), chromedp.NodeVisible), chromedp.Func(insert))
}

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
func Evaluate[T any](in interface{ Base() *Browser }, expression string) T {
	b := in.Base()
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.window, browserTimeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("evaluate JavaScript in the page: %v", err)
	}
	return value
}

// Base returns the browser, also for types that embed it.
func (b *Browser) Base() *Browser { return b }

// Window is the window, for chromedp.
func (b *Browser) Window() context.Context { return b.window }

// Text returns the visible text of the page with white space collapsed.
func (b *Browser) Text() string {
	b.t.Helper()
	return strings.Join(strings.Fields(Evaluate[string](b, `document.body.innerText`)), " ")
}

// Complaints returns the errors on the browser's console, including blocked loads and policy violations.
func (b *Browser) Complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.complaints)
}
