package e2e

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The page for people, in a real browser: it asks for nothing but itself, fits the narrowest screen, and its links lead
// to what they name.
func TestDocumentationIsOnePageThatFits(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for _, screen := range []harness.Screen{harness.Laptop, harness.Narrowest} {
		browser := p.Browser(t, screen)
		browser.WithoutScript()
		browser.Open(p.BaseURL + "/v1/docs#changeProgramme")
		browser.See("#changeProgramme h3")
		if hosts := browser.Hosts(); len(hosts) != 1 || !strings.HasSuffix(p.BaseURL, hosts[0]) {
			t.Errorf("it asked %v", hosts)
		}
		if complaints := browser.Complaints(); len(complaints) > 0 {
			t.Errorf("%q", complaints)
		}
		if wide := harness.Ask[int](browser, `document.documentElement.scrollWidth`); int64(wide) > screen.Width {
			t.Errorf("%d pixels wide on a screen of %d", wide, screen.Width)
		}
		if top := harness.Ask[float64](browser, `document.querySelector("#changeProgramme").getBoundingClientRect().top`); top < 0 ||
			top > 200 {
			t.Errorf("the link led %f pixels beside it", top)
		}
		if styled := harness.Ask[string](browser, `getComputedStyle(document.querySelector("pre")).backgroundColor`); styled == "rgba(0, 0, 0, 0)" {
			t.Error("the policy keeps the style away")
		}
	}
}
