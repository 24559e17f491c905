package e2e

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The documentation page in a real browser: it loads nothing else, fits the narrowest screen, and its links lead to
// their targets.
func TestDescribed_DocumentationPageFits(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for _, screen := range []harness.Screen{harness.Laptop, harness.Narrowest} {
		browser := newBrowser(t, p, screen)
		browser.WithoutScript()
		browser.Open(p.BaseURL + "/v1/docs#changeProgramme")
		browser.See("#changeProgramme h3")
		if hosts := browser.Hosts(); len(hosts) != 1 || !strings.HasSuffix(p.BaseURL, hosts[0]) {
			t.Errorf("requests to %v", hosts)
		}
		if complaints := browser.Complaints(); len(complaints) > 0 {
			t.Errorf("%q", complaints)
		}
		if wide := harness.Evaluate[int](browser, `document.documentElement.scrollWidth`); int64(wide) > screen.Width {
			t.Errorf("%d pixels wide on a screen of %d", wide, screen.Width)
		}
		top := harness.Evaluate[float64](browser,
			`document.querySelector("#changeProgramme").getBoundingClientRect().top`)
		if top < 0 || top > 200 {
			t.Errorf("the link's target is at %f pixels", top)
		}
		styled := harness.Evaluate[string](browser, `getComputedStyle(document.querySelector("pre")).backgroundColor`)
		if styled == "rgba(0, 0, 0, 0)" {
			t.Error("the content security policy blocks the style")
		}
	}
}
