package e2e

import (
	"slices"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The consent page in a real browser.

// struckOut returns the titles of the struck-out permissions.
const struckOut = `[...document.querySelectorAll(".permission-title")]
	.filter(e => getComputedStyle(e).textDecorationLine === "line-through").map(e => e.textContent)`

// hiddenButtons returns the buttons of the decision that are not completely in the window.
const hiddenButtons = `[...document.querySelectorAll(".decision button")].filter(e => {
	const box = e.getBoundingClientRect();
	return box.top < 0 || box.bottom > innerHeight || document.elementFromPoint(box.x + 5, box.y + 5) !== e;
}).map(e => e.textContent)`

func TestBrowser_ConsentShowsDecisionAndWhatReadOnlyLeavesOut(t *testing.T) {
	p, ws := inWorkspace(t)
	user := ws.Member(t, harness.ReadProgrammes, harness.WriteProgrammes, harness.APIAccess)
	application := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	browser := newBrowser(t, p, harness.Laptop)
	browser.WithoutScript()
	browser.Open(p.AuthorizeURL(application.Begin().Query))
	browser.SignIn(user.Email, user.Password)
	browser.See(approveButton)
	for _, screen := range []harness.Screen{harness.Laptop, harness.Telephone} {
		browser.Show(screen, "light")
		browser.Click(`input[name=access][value=all]`)
		for _, at := range []string{"0", "document.documentElement.scrollHeight"} {
			harness.Evaluate[bool](browser, `(scrollTo(0, `+at+`), true)`)
			if hidden := harness.Evaluate[[]string](browser, hiddenButtons); len(hidden) > 0 {
				t.Errorf("%d pixels, at %s: out of view: %v", screen.Width, at, hidden)
			}
		}
		if struck := harness.Evaluate[[]string](browser, struckOut); len(struck) > 0 {
			t.Errorf("with all permissions, struck out: %v", struck)
		}
		browser.Click(`input[name=access][value=read]`)
		want := []string{"Add and change programmes"}
		if struck := harness.Evaluate[[]string](browser, struckOut); !slices.Equal(struck, want) {
			t.Errorf("with read only, struck out: %v, want %v", struck, want)
		}
		// Tab leads through the page: the bar does not cover what has the focus.
		harness.Evaluate[bool](browser, `(scrollTo(0, 0), document.activeElement.blur(), true)`)
		for range 8 {
			browser.Press(TabKey)
			if covered := harness.Evaluate[bool](browser, `(() => {
				const e = document.activeElement, bar = document.querySelector(".decision-bar");
				return !bar.contains(e) && e !== document.body &&
					e.getBoundingClientRect().bottom > bar.getBoundingClientRect().top;
			})()`); covered {
				t.Errorf("%d pixels: the bar covers %q", screen.Width, browser.Focused())
			}
		}
	}
	// A low window, such as an enlarged one, has no room for a bar.
	browser.Show(harness.Screen{Width: 640, Height: 400}, "light")
	if top := harness.Evaluate[float64](browser,
		`(scrollTo(0, 0), document.querySelector(".decision-bar").getBoundingClientRect().top)`); top < 400 {
		t.Errorf("in a low window the bar is at %g pixels", top)
	}
}
