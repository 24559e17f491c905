package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/almonerhq/almoner/shared/devkit/await"
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
	_, h := s.workspace()
	f := s.makeForm(h, strings.Replace(allTypes, goodOrigin, local(allowed), 1))
	embedKey = f.EmbedKey
	return embedding{s, f, local(allowed), local(foreign)}
}

// asIfSlowlyFilled gives the page the token of an earlier one, since a page that is sent too quickly is refused.
func (s *service) asIfSlowlyFilled(f formRecord, where ...chromedp.QueryOption) chromedp.Action[chromedp.Void] {
	return chromedp.SetValue(chromedp.CSS("[name=submissionToken]"), s.filled(f), where...)
}

// frame returns the embedded page, whichever it is now.
func frame(tab context.Context, t *testing.T) *chromedp.Node {
	t.Helper()
	frames := orFail(chromedp.Run(tab, chromedp.Nodes(chromedp.CSS("iframe"))))(t)
	return frames[0]
}

// in waits until the embedded page has the element, with text, and returns the text.
func in(tab context.Context, t *testing.T, selector string) string {
	t.Helper()
	var text string
	await.NoError(t, func() (err error) {
		try, cancel := context.WithTimeout(tab, 2*time.Second) // the frame navigates between pages
		defer cancel()
		text, err = chromedp.Run(try, chromedp.Text(chromedp.CSS(selector), chromedp.FromNode(frame(tab, t))))
		if err == nil && strings.TrimSpace(text) == "" { // the page was left meanwhile
			err = errors.New("no text")
		}
		return err
	})
	return text
}

func evaluate[T any](tab context.Context, t *testing.T, script string) T {
	t.Helper()
	value := orFail(chromedp.Run(tab, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise)))(t)
	return value
}

const frameHeight = "document.querySelector('iframe').getBoundingClientRect().height"

func TestEmbed_FormIsSubmittedFromAnotherOrigin(t *testing.T) {
	t.Parallel()
	e := newEmbedding(t)
	tab := newBrowser(t)
	do(tab, t, chromedp.Navigate(e.allowed), chromedp.WaitVisible(chromedp.CSS("iframe")))
	if title := in(tab, t, "h1"); title != "Volunteer with us" {
		t.Fatalf("%q", title)
	}
	height := func() float64 { return evaluate[float64](tab, t, frameHeight) }
	e.until("the frame is as high as the form", func() bool { return height() > 900 })
	before := height()

	do(tab, t, chromedp.Click(chromedp.CSS("button[type=submit]"), chromedp.FromNode(frame(tab, t))))
	if alert := in(tab, t, ".alert"); !strings.Contains(alert, "Please correct 3 answers") {
		t.Errorf("%s", alert)
	}
	e.until("the frame has grown with what is wrong", func() bool { return height() > before+50 })

	here := chromedp.FromNode(frame(tab, t))
	do(tab, t,
		chromedp.SendKeys(chromedp.CSS("#f0"), "Ada Okafor", here),
		chromedp.SendKeys(chromedp.CSS("#f1"), "ada@example.org", here),
		chromedp.SendKeys(chromedp.CSS("#f5"), "Garden", here),
		chromedp.Click(chromedp.CSS("#f6-2"), here),
		chromedp.SendKeys(chromedp.CSS("#f7"), "Hello", here),
		chromedp.Click(chromedp.CSS("#f9"), here),
		e.asIfSlowlyFilled(e.form, here),
		chromedp.Click(chromedp.CSS("button[type=submit]"), here),
	)
	if thanks := in(tab, t, ".thanks"); !strings.Contains(thanks, "We received your answers") {
		t.Errorf("%s", thanks)
	}
	e.until("processed", func() bool {
		return e.rows("resource.submissions", `status = 'processed'
			and answers @> '{"name":"Ada Okafor","area":"Garden","days":["Friday"],"privacy":true}'`) == 1
	})
	e.until("the page says so", func() bool { return strings.Contains(in(tab, t, ".thanks"), "have processed them") })
}

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

func TestEmbed_BrowserRefusesOriginNotAllowed(t *testing.T) {
	t.Parallel()
	e := newEmbedding(t)
	tab := newBrowser(t)
	wants := func(script, want string) {
		t.Helper()
		if got := evaluate[string](tab, t, script); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	script := fmt.Sprintf(byScript, local(e.server)+e.form.path())
	token := e.tokens.ForSubmission(e.form.ID, time.Now())
	do(tab, t, chromedp.Navigate(e.foreign), chromedp.WaitVisible(chromedp.CSS("iframe")))
	wants(script, "refused")
	wants(fmt.Sprintf(`fetch(%q, {method: "POST", mode: "no-cors", body: %q}).then(() => "sent")`,
		local(e.server)+e.form.path()+"/submissions", submissionOf(token, goodAnswers())), "sent")
	wants(`new Promise(done => document.readyState == "complete" ? done("loaded") :
		addEventListener("load", () => done("loaded")))`, "loaded") // the page's load waits for its frames
	forms := orFail(chromedp.Run(tab,
		chromedp.Nodes(chromedp.CSSAll("form"), chromedp.AtLeast(0), chromedp.FromNode(frame(tab, t)))))(t)
	if len(forms) != 0 {
		t.Errorf("the form is shown: %d", len(forms))
	}
	if height := evaluate[float64](tab, t, frameHeight); height != 512 {
		t.Errorf("the frame got a height: %g", height)
	}
	e.wantsRows(0, "resource.submissions", "")
	do(tab, t, chromedp.Navigate(e.allowed), chromedp.WaitVisible(chromedp.CSS("iframe")))
	wants(script, "202 36")
	e.wantsRows(1, "resource.submissions", "")
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

func TestWorker_RecoversFromPostgresOutage(t *testing.T) {
	t.Parallel()
	s := ownService(t, silently)
	_, f := s.form()
	first := s.accepted(f)
	var w *wire
	worker := s.build(through(t, &w)) // the API connects to Postgres directly
	w.freeze()
	s.work(worker)
	s.until("the first attempt to connect has failed", func() bool {
		return strings.Contains(s.log.String(), "submissions not processed; retrying")
	})
	if state := s.state(first); state.Status != "accepted" {
		t.Fatalf("%+v without Postgres", state)
	}
	w.thaw()
	s.processed(first)
	w.cut()
	s.processed(s.accepted(f))
}

// A user who submits a form during an outage gets a page that resubmits the answers with one click.
func TestPublicPage_ReturnsAnswersDuringOutage(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	_, f := s.form()
	var w *wire
	s.serve(s.build(silently, through(t, &w), func(c *Config) {
		c.BaseURL = local(s.server) // so that the browser's Origin is the page's own
	}))
	tab, button := newBrowser(t), chromedp.CSS("button[type=submit]")
	says := func(text string) {
		t.Helper()
		s.until("the page says: "+text, func() bool {
			return strings.Contains(evaluate[string](tab, t, "document.body ? document.body.innerText : ''"), text)
		})
	}
	do(tab, t,
		chromedp.Navigate(local(s.server)+f.path()+"/embed"),
		chromedp.SendKeys(chromedp.CSS("#f0"), `Ada "Okafor" <a@b>`),
		chromedp.SendKeys(chromedp.CSS("#f1"), "ada@example.org"),
		chromedp.SendKeys(chromedp.CSS("#f7"), "One line.\nAnother line."),
		chromedp.Click(chromedp.CSS("#f6-2")), chromedp.Click(chromedp.CSS("#f9")),
		s.asIfSlowlyFilled(f),
	)
	w.freeze()
	fields := goodFields(s.filled(f))
	pages := requests{
		"opened":    func() answer { return s.get(f.path()+"/embed", nil) },
		"sent":      func() answer { return s.sendPage(f, nil, fields) },
		"elsewhere": func() answer { return s.sendPage(f, header{"Origin": otherOrigin}, fields) },
		"empty":     func() answer { return s.sendPage(f, nil, nil) },
		"accepted":  func() answer { return s.get(f.path()+"/embed?submission=x&token=y", nil) },
	}.send()
	for page, heading := range map[string]string{
		"opened": "We cannot show this form at the moment",
		"sent":   "We cannot accept your answers at the moment",
	} {
		pages[page].wants(t, 503, "<h1>"+heading+"</h1>").
			header(t, "Content-Type", "text/html; charset=utf-8").
			header(t, "Retry-After", "*")
	}
	s.logHas(`"msg":"request failed","status":503,"cause"`)
	pages["elsewhere"].wants(t, 503).lacks(t, "<form")
	pages["empty"].wants(t, 503).lacks(t, "<form", "still on this page")
	pages["accepted"].wants(t, 503, "We received your answers").lacks(t, "Open the form again")
	pages["opened"].has(t, "Open the form again").lacks(t, "<form")
	do(tab, t, chromedp.Click(button))
	says("Your answers are still on this page")

	w.thaw()
	s.eventually(t, 200, func() answer { return s.get(f.path(), nil) })
	do(tab, t, chromedp.Click(button))
	says("We received your answers")
	s.wantsRows(1, "resource.submissions", `answers @> '{"name":"Ada \"Okafor\" <a@b>","email":"ada@example.org",
		"days":["Friday"],"about":"One line.\nAnother line.","privacy":true}'`)
}
