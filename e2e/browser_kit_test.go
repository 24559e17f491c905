package e2e

import (
	"context"
	_ "embed" // for axeScript
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A Browser is a browser with what only the tests of pages need: devices, networks, screens and pictures.
type Browser struct {
	*harness.Browser
	t     testing.TB
	hosts *sync.Map // host → nil, of each request that the browser has sent
}

// newBrowser opens a window with an empty profile. The names are host names that resolve to this machine.
func newBrowser(t testing.TB, p *harness.Product, screen harness.Screen, names ...string) Browser {
	t.Helper()
	b := Browser{p.Browser(t, screen, names...), t, &sync.Map{}}
	err := chromedp.Listen(b.Window(), func(event any) {
		request, is := event.(*network.EventRequestWillBeSent)
		if !is {
			return
		}
		if address, err := url.Parse(request.Request.URL); err == nil && address.Host != "" {
			b.hosts.Store(address.Host, nil)
		}
	})
	if err != nil {
		t.Fatalf("start a browser: %v", err)
	}
	return b
}

// OpenAs opens a URL that leads to the sign-in page, and signs in there.
func (b Browser) OpenAs(user demo.User, address string) {
	b.t.Helper()
	b.Open(address)
	b.SignIn(user.Email, user.Password)
}

// OpenAndSee opens a URL and waits until an element of its page is visible.
func (b Browser) OpenAndSee(address, element string) {
	b.t.Helper()
	b.Open(address)
	b.See(element)
}

// ClickAndSee clicks an element and waits until another one is visible.
func (b Browser) ClickAndSee(element, next string) {
	b.t.Helper()
	b.Click(element)
	b.See(next)
}

// Keys without a printable character.
const (
	TabKey   = kb.Tab
	EnterKey = kb.Enter
)

// WithoutScript disables JavaScript in pages that are opened later.
func (b Browser) WithoutScript() {
	b.t.Helper()
	parameters := emulation.SetScriptExecutionDisabledParams{Value: true}
	if _, err := chromedp.Call(b.Window(), emulation.SetScriptExecutionDisabled, parameters); err != nil {
		b.t.Fatalf("switch JavaScript off: %v", err)
	}
}

// DelayResponses delays every later response, as a slow connection does. Requests are not delayed.
func (b Browser) DelayResponses(late time.Duration) {
	b.t.Helper()
	b.connection(network.Conditions{Latency: float64(late.Milliseconds())})
}

// Offline ends the connection of the browser, or restores it, and has the page notice.
func (b Browser) Offline(offline bool) {
	b.t.Helper()
	b.connection(network.Conditions{Offline: offline})
	state := network.OverrideNetworkStateParams{Offline: offline, DownloadThroughput: -1, UploadThroughput: -1}
	if _, err := chromedp.Call(b.Window(), network.OverrideNetworkState, state); err != nil {
		b.t.Fatalf("change the state of the network: %v", err)
	}
}

// connection sets what the network does to every later request.
func (b Browser) connection(c network.Conditions) {
	b.t.Helper()
	c.DownloadThroughput, c.UploadThroughput = -1, -1
	parameters := network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: []*network.Conditions{&c}}
	if _, err := chromedp.Call(b.Window(), network.EmulateNetworkConditionsByRule, parameters); err != nil {
		b.t.Fatalf("change the connection: %v", err)
	}
}

// Picture returns a screenshot of the viewport as PNG.
func (b Browser) Picture() []byte {
	b.t.Helper()
	picture, err := chromedp.Run(b.Window(), chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatalf("take a picture: %v", err)
	}
	return picture
}

// EndTransitions ends the transitions of the page: colours in the middle of one are not those of the page.
func (b Browser) EndTransitions() {
	b.t.Helper()
	harness.Evaluate[bool](b, `document.getAnimations().forEach(a => { a.finish() }) || true`)
}

// WholePicture returns a screenshot of the whole page as PNG.
func (b Browser) WholePicture() []byte {
	b.t.Helper()
	picture, err := chromedp.Run(b.Window(), chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatalf("take a picture: %v", err)
	}
	return picture
}

// Focused returns the label or text of the focused element, as a screen reader would begin.
func (b Browser) Focused() string {
	b.t.Helper()
	return harness.Evaluate[string](b, `(() => { const e = document.activeElement;
			if (!e || e === document.body) return "";
			return (e.getAttribute("aria-label") ||
				(e.labels && e.labels[0] && e.labels[0].textContent) ||
				e.textContent).trim() })()`)
}

// Hosts returns the hosts that the browser has sent requests to, without duplicates.
func (b Browser) Hosts() []string {
	var out []string
	for host := range b.hosts.Range {
		out = append(out, host.(string))
	}
	return out
}

// Press types on the keyboard into the focused element.
func (b Browser) Press(keys string) { b.t.Helper(); b.Do("press a key", chromedp.KeyEvent(keys)) }

// Scheme sets the colour scheme that the browser prefers: "light" or "dark".
func (b Browser) Scheme(scheme string) {
	b.t.Helper()
	parameters := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}
	if _, err := chromedp.Call(b.Window(), emulation.SetEmulatedMedia, parameters); err != nil {
		b.t.Fatalf("set the scheme: %v", err)
	}
}

// TransferSize returns the number of bytes transferred for the page and its files.
func (b Browser) TransferSize() int {
	b.t.Helper()
	return harness.Evaluate[int](b, `["navigation", "resource"].flatMap(kind => performance.getEntriesByType(kind))
		.reduce((sum, entry) => sum + entry.transferSize, 0)`)
}

// Overflow returns by how many pixels the page is wider than the screen.
func (b Browser) Overflow() int {
	b.t.Helper()
	return harness.Evaluate[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`)
}

// TimeZone sets the time zone of the pages, like Europe/London.
func (b Browser) TimeZone(name string) {
	b.t.Helper()
	parameters := emulation.SetTimezoneOverrideParams{TimezoneID: name}
	if _, err := chromedp.Call(b.Window(), emulation.SetTimezoneOverride, parameters); err != nil {
		b.t.Fatalf("set the time zone: %v", err)
	}
}

// Show sets the size of the window and the colour scheme that the user prefers: "light" or "dark".
func (b Browser) Show(screen harness.Screen, colours string) {
	b.t.Helper()
	b.Do("resize the window", chromedp.EmulateViewport(screen.Width, screen.Height))
	b.Scheme(colours)
}

// Paper shows the page as it is printed on A4.
func (b Browser) Paper() {
	b.t.Helper()
	b.Do("paper", chromedp.EmulateViewport(680, 960)) // A4 without its margins
	media := emulation.SetEmulatedMediaParams{Media: "print"}
	if _, err := chromedp.Call(b.Window(), emulation.SetEmulatedMedia, media); err != nil {
		b.t.Fatalf("show the page on paper: %v", err)
	}
}

// axeScript is the script of axe-core 4.14.1 (https://github.com/dequelabs/axe-core), which finds violations of
// accessibility rules in a page. axe/axe.min.js is the file of that name in the npm package axe-core, unchanged; its
// licence is the Mozilla Public License 2.0 (LICENSE, LICENSE-3RD-PARTY.txt). To update it: npm pack axe-core, copy the
// three files, and change the version here. It defines axe in the page.
//
//go:embed axe/axe.min.js
var axeScript string

// newScript finds what no inspected page had: a template, a kind of visible element with its parent, or, in this view,
// a style of text. Contrast depends on the styles of an element and of its ancestors, so the first visible element with
// text of each such style is marked for the check. It ends transitions, because they change colours.
const newScript = `((seen, view) => {
	for (const a of document.getAnimations()) a.finish();
	const known = new Set(seen), added = [];
	const hashOf = text => {
		let hash = 0;
		for (let i = 0; i < text.length; i++) hash = hash * 31 + text.charCodeAt(i) | 0;
		return hash;
	};
	const isNew = text => {
		const hash = hashOf(text), fresh = !known.has(hash);
		if (fresh) added.push(hash);
		return fresh && !!known.add(hash);
	};
	let all = isNew("page " + (document.body.dataset.page || location.pathname)), contrast = false;
	const styles = new Map([[null, ""]]);
	for (const e of document.querySelectorAll("*")) {
		e.removeAttribute("data-contrast");
		const s = getComputedStyle(e);
		const own = [s.color, s.backgroundColor, s.backgroundImage, s.opacity, s.fontSize, s.fontWeight, s.display];
		styles.set(e, hashOf(styles.get(e.parentElement) + "/" + own));
		if (!e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
		const scrolls = /auto|scroll/.test(s.overflowX) && e.scrollWidth > e.clientWidth;
		const kind = [e.parentElement?.tagName, e.tagName, e.className, e.role, e.type, e.getAttributeNames(), scrolls];
		all = isNew("kind " + kind) || all;
		const text = e.matches("input, select, textarea") ||
			[...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim());
		const shown = text && e.getBoundingClientRect().width > 1; // narrower text is for screen readers only
		if (shown && isNew("style " + view + styles.get(e))) contrast = e.toggleAttribute("data-contrast");
	}
	return { all, contrast, added };
})`

// violationsScript runs axe-core with all rules, or with the one about contrast, and reports each element that violates
// one.
const violationsScript = `(async only => {
	axe.configure({ rules: [{ id: "color-contrast", selector: "[data-contrast]" }] });
	const result = await axe.run(document, { resultTypes: ["violations"], ...(only && { runOnly: [only] }) });
	return result.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.failureSummary + " " + n.html));
})`

// Violations returns the violations that axe-core finds in what is new on the page, shown in a view: a window size with
// a colour scheme. seen has what is not new, and gets the rest.
func (b Browser) Violations(seen *[]int, view string) []string {
	b.t.Helper()
	known, err := json.Marshal(append([]int{}, *seen...))
	if err != nil {
		b.t.Fatal(err)
	}
	found := harness.Evaluate[struct {
		All, Contrast bool
		Added         []int
	}](b, fmt.Sprintf("%s(%s, %q)", newScript, known, view))
	*seen = append(*seen, found.Added...)
	if !found.All && !found.Contrast {
		return nil
	}
	if !harness.Evaluate[bool](b, `typeof axe !== "undefined"`) {
		harness.Evaluate[bool](b, axeScript+";true")
	}
	only := ""
	if !found.All {
		only = "color-contrast"
	}
	ctx, cancel := context.WithTimeout(b.Window(), await.Long)
	defer cancel()
	run := fmt.Sprintf("%s(%q)", violationsScript, only)
	violations, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](run, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("run axe-core: %v", err)
	}
	return violations
}
