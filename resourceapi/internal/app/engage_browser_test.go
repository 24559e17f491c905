package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// sharedBrowser is a browser for all tests, which TestMain closes.
var (
	sharedBrowser = testkit.Once(func(t testing.TB) context.Context {
		profile := orFail(localstore.ProcessDir("almoner-test-chromium-"))(t)
		options := append(
			chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(localstore.FindChromium(os.Getenv("ALMONER_TEST_TOOLS"))),
			chromedp.ModifyCmdFunc(localstore.WithoutPriority),
			chromedp.NoSandbox,
			chromedp.DisableGPU,
			chromedp.Flag("disable-background-networking", true),
			chromedp.UserDataDir(profile),
			chromedp.WindowSize(1280, 800),
		)
		allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
		browser, closeBrowser := chromedp.NewContext(allocator)
		closeSharedBrowser = func() { closeBrowser(); stop() }
		if err := chromedp.Do(browser); err != nil { // starts it
			t.Fatal(err)
		}
		return browser
	})
	closeSharedBrowser = func() {}
)

// newBrowser opens a tab with cookies of its own.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	tab, closeTab := chromedp.NewContext(sharedBrowser(t), chromedp.WithNewBrowserContext())
	t.Cleanup(closeTab)
	return tab
}

// local returns the server's URL with the host localhost: a site of another origin is another port of the same host.
func local(server *httptest.Server) string {
	return strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
}

// newSite starts a website with a page that embeds the form, as its owner would write it.
func newSite(t *testing.T, api, embedKey *string) *httptest.Server {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>Harbour Trust</title><h1>Harbour Trust</h1>
			<script src="%s/v1/engage/public/embed.js"
				data-form="%s" data-title="Volunteer with us" async></script><p id="end">The end</p>`, *api, *embedKey)
	}))
	t.Cleanup(site.Close)
	return site
}

// embedding is a service with its own address, a site that its form allows, and one that it does not.
type embedding struct {
	*service
	form             formRecord
	allowed, foreign string
}

// sharedEmbedding is a service whose base URL is its own address, and which processes submissions.
var sharedEmbedding = testkit.Once(func(t testing.TB) *service {
	s := ownService(t)
	s.serve(s.build(func(c *Config) { c.BaseURL = local(s.server) }))
	s.work(s.app)
	return s
})

func newEmbedding(t *testing.T) embedding {
	t.Helper()
	s := sharedEmbedding(t).forTest(t)
	api := local(s.server)
	embedKey := ""
	allowed, foreign := newSite(t, &api, &embedKey), newSite(t, &api, &embedKey)
	h := s.workspace()
	f := s.makeForm(h, strings.Replace(allTypes, goodOrigin, local(allowed), 1))
	embedKey = f.EmbedKey
	return embedding{s, f, local(allowed), local(foreign)}
}

func evaluate[T any](tab context.Context, t *testing.T, script string) T {
	t.Helper()
	value := orFail(chromedp.Run(tab, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise)))(t)
	return value
}

const frameHeight = "document.querySelector('iframe').getBoundingClientRect().height"

// byScript reads and submits the form, like a site's own script.
const byScript = `(async () => {
	try {
		const form = await (await fetch("%[1]s")).json();
		const answer = await fetch("%[1]s/submissions", {method: "POST",
			headers: {"Content-Type": "application/json", "Idempotency-Key": "by-script"},
			body: JSON.stringify({
				submissionToken: form.submissionToken,
				answers: {name: "Ada", email: "ada@example.org", privacy: true}})});
		const accepted = await answer.json();
		const status = await (await fetch(accepted.statusUrl)).json();
		return answer.status + " " + status.id.length;
	} catch (fault) { return "refused"; }
})()`

// What the browser shows of a frame that is refused, its own policy says: TestPublicPage_SubmitsWithoutScript has it.
func TestEmbed_BrowserRefusesOriginNotAllowed(t *testing.T) {
	t.Parallel()
	e := newEmbedding(t)
	tab := newBrowser(t)
	script := fmt.Sprintf(byScript, local(e.server)+e.form.path())
	for _, c := range []struct {
		site, answer string
		submissions  int
	}{{e.foreign, "refused", 0}, {e.allowed, "202 36", 1}} {
		do(tab, t, chromedp.Navigate(c.site))
		if got := evaluate[string](tab, t, script); got != c.answer {
			t.Errorf("%s, want %s", got, c.answer)
		}
		e.wantsRows(c.submissions, "resource.submissions", "")
	}
}

// The frame shows the whole form on a phone and on a desktop: nothing is cut off, nothing scrolls within it, and it
// adapts when the width changes.
func TestEmbed_FrameHeightFollowsForm(t *testing.T) {
	t.Parallel()
	e := newEmbedding(t)
	tab := newBrowser(t)
	set := func(width int64) { t.Helper(); do(tab, t, chromedp.EmulateViewport(width, 844)) }
	open := func(address string) {
		t.Helper()
		do(tab, t, chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS("body")))
	}
	const frameWidth = "Math.round(document.querySelector('iframe').getBoundingClientRect().width)"
	const scrolls = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
	heights := map[int64]float64{} // of the page alone, at the frame's width
	for _, width := range []int64{390, 1280} {
		set(width)
		open(e.allowed)
		set(evaluate[int64](tab, t, frameWidth))
		open(local(e.server) + e.form.path() + "/embed?frame=1")
		heights[width] = evaluate[float64](tab, t, "document.documentElement.scrollHeight")
		if evaluate[bool](tab, t, scrolls) {
			t.Errorf("%d wide: the form is wider than its frame", width)
		}
	}
	if heights[390] == heights[1280] {
		t.Fatal("the two widths show nothing")
	}
	set(1280)
	open(e.allowed)
	for _, width := range []int64{390, 1280, 390} {
		set(width)
		e.until(fmt.Sprintf("the frame fits, %d wide", width), func() bool {
			difference := evaluate[float64](tab, t, frameHeight) - heights[width]
			return difference >= 0 && difference <= 2
		})
		if evaluate[bool](tab, t, scrolls) {
			t.Errorf("%d wide: the site has to be scrolled sideways", width)
		}
	}
}

// do runs the steps in the tab.
func do(tab context.Context, t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	must(t, chromedp.Do(tab, steps...))
}
