package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// axe-core in a real browser, on every page.

// A view is a size of the window and a colour scheme.
type view struct {
	size    string
	screen  harness.Screen
	colours string
}

// views returns, for pictures, each window size in each colour scheme, a laptop's window at 200 %, and paper.
func views() []view {
	return []view{
		{paper, harness.Screen{}, "light"}, // first, because paper has no buttons to go on with
		{"laptop", harness.Laptop, "dark"}, {"laptop", harness.Laptop, "light"},
		{"phone", harness.Telephone, "dark"}, {"phone", harness.Telephone, "light"},
		{"enlarged", harness.Screen{Width: 640, Height: 400}, "light"},
	}
}

// paper is the view of the pages that people print.
const paper = "paper"

var printed = []string{"audit", "authenticator", "connection", "consent", "formermember", "member"}

// An inspector visits every page.
type inspector struct {
	Browser
	t       *testing.T
	pages   int
	seen    map[string]bool // templates of authserver
	axe     []int           // what axe-core has inspected
	views   []view
	inspect func(i *inspector, page string, v view)
}

// look inspects the open page.
func (i *inspector) look(page string) {
	i.t.Helper()
	i.pages++
	template := harness.Evaluate[string](i.Browser, `document.body.dataset.page || ""`)
	i.seen[template] = true
	for _, v := range i.views {
		if v.size != paper {
			i.Show(v.screen, v.colours)
		} else if slices.Contains(printed, template) {
			i.Paper()
		} else {
			continue
		}
		i.inspect(i, page, v)
	}
}

// after clicks an element, and inspects the page as soon as it shows another one.
func (i *inspector) after(click, shows, page string) {
	i.t.Helper()
	i.ClickAndSee(click, shows)
	i.look(page)
}

// weightOf is the size in bytes of a page and its files, as they are sent. It includes cached files.
const weightOf = `[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
	.reduce((n, e) => n + e.encodedBodySize, 0)`

// maxWeight is the maximum weight of a page.
const maxWeight = 60 << 10

// offTabOrder returns the shown controls that the Tab key does not reach, or not in the order of the page.
const offTabOrder = `[...document.querySelectorAll("a[href],button,input,select,textarea,summary,[tabindex]")]
	.filter(e => e.checkVisibility() && !e.disabled && !e.closest("[aria-hidden=true]") && (e.tabIndex > 0 ||
		e.tabIndex < 0 && e.matches("a,button,input,select,textarea,summary")))
	.map(e => e.outerHTML)`

// unfold opens all details of a page, and fold closes those that it has opened.
const (
	unfold = `document.querySelectorAll("details:not([open])").forEach(
		d => { d.open = true; d.dataset.folded = "" }) || true`
	fold = `document.querySelectorAll("[data-folded]").forEach(d => { d.open = false }) || true`
)

// withAxe checks the layout of a page, opens all its details, checks it again, inspects it with axe-core, weighs it,
// and looks for what the keyboard does not reach or the screen does not show.
func withAxe(i *inspector, page string, v view) {
	i.t.Helper()
	report := func(faults []string) {
		for _, fault := range faults {
			i.t.Errorf("%s, %s, %s: %s", page, v.size, v.colours, fault)
		}
	}
	own := harness.Evaluate[bool](i.Browser, `"page" in document.body.dataset`)
	for _, script := range []string{fold, unfold} {
		harness.Evaluate[bool](i.Browser, script)
		if own {
			report(harness.Evaluate[[]string](i.Browser, layoutFaults))
		}
	}
	if page != onWebsite { // it is not ours
		if weight := harness.Evaluate[int](i.Browser, weightOf); weight > maxWeight || weight < 1000 {
			i.t.Errorf("%s has %d bytes, want at most %d", page, weight, maxWeight)
		}
	}
	for _, control := range harness.Evaluate[[]string](i.Browser, offTabOrder) {
		i.t.Errorf("%s: the Tab key does not reach %s", page, control)
	}
	if over := i.Overflow(); over > 0 {
		i.t.Errorf("%s, %s: %d pixels wider than the screen", page, v.size, over)
	}
	report(i.Violations(&i.axe, v.size+v.colours))
}

// at opens and inspects a page.
func (i *inspector) at(address string) {
	i.t.Helper()
	i.Open(address)
	path, _, _ := strings.Cut(address, "token=")
	i.look(path[strings.Index(path, "//")+2:])
}

// findsViolations requires that axe-core reports a missing label and insufficient contrast, although the first element
// with these colours has no text.
func (i *inspector) findsViolations(p *harness.Product) {
	i.t.Helper()
	i.Open(p.AppURL + "/login")
	harness.Evaluate[bool](i.Browser, `(() => {
		document.querySelector("label").remove();
		const lead = document.querySelector("p.lead");
		lead.style.color = "#bbb";
		lead.before(lead.cloneNode());
		return true;
	})()`)
	found := strings.Join(i.Violations(&[]int{}, ""), "\n")
	for _, rule := range []string{"label: ", "color-contrast: "} {
		if !strings.Contains(found, rule) {
			i.t.Errorf("axe-core does not find %s in a page that violates it: %s", rule, found)
		}
	}
}

func TestBrowser_AxeFindsNoViolation(t *testing.T) {
	t.Parallel()
	// No style has a condition on a width between those of the two phones: what fits the narrower one fits the other.
	i := tour(t, []view{{"laptop", harness.Laptop, "dark"}, {"small phone", harness.Narrowest, "light"}}, withAxe)
	for _, host := range i.Hosts() {
		if name, _, _ := strings.Cut(host, ":"); name != "localhost" && name != "127.0.0.1" {
			t.Errorf("a page sent a request to %s", host)
		}
	}
	templates, err := filepath.Glob("../authserver/internal/endpoint/ui/templates/*.html")
	must(t, err)
	if len(templates) < 40 {
		t.Fatalf("%d templates", len(templates))
	}
	for _, file := range templates {
		name := strings.TrimSuffix(filepath.Base(file), ".html")
		if !i.seen[name] && name != "layout" && !strings.HasPrefix(name, "part_") {
			t.Errorf("no page of %s was inspected", file)
		}
	}
}

var screenshots = flag.String("screenshots", "", "write pictures of all pages to this folder")

// TestScreenshots is `make screenshots`. It writes a picture of each page on both sizes of the window in light and in
// dark colours, and one of the whole page with all details opened, if that is higher than the window.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("run make screenshots")
	}
	must(t, os.MkdirAll(*screenshots, 0o755))
	tour(t, views(), func(i *inspector, page string, v view) {
		i.t.Helper()
		file := fmt.Sprintf("%02d-%s-%s-%s", i.pages, fileName(page), v.size, v.colours)
		harness.Evaluate[bool](i.Browser, fold)
		i.EndTransitions()
		pictures := map[string][]byte{file: i.Picture()}
		harness.Evaluate[bool](i.Browser, unfold)
		i.EndTransitions()
		// The browser takes no picture of 16,384 pixels or more.
		height := harness.Evaluate[int](i.Browser, `document.documentElement.scrollHeight`)
		if height > harness.Evaluate[int](i.Browser, `innerHeight`) && height < 16384 {
			pictures[file+"-whole"] = i.WholePicture()
		}
		for name, picture := range pictures {
			writePicture(i.t, name, picture)
		}
	})
	writePicture(t, "consent-page", readmePicture(t))
}

// readmePicture returns the README's picture: the consent page with the demo's data (authserver/consent-page.png). The
// demo's own redirect URI is one of this computer, which the page would warn about.
func readmePicture(t *testing.T) []byte {
	t.Helper()
	p := harness.NewProduct(t, harness.Private(t, harness.Options{}), &met)
	connector := p.DemoConnector()
	connector.RedirectURI = "https://chatgpt.com/connector_platform_oauth_redirect"
	p.Database.Exec(t, `update account.oauth_clients set redirect_uris = $2 where id = $1`, connector.ClientID,
		[]string{connector.RedirectURI})
	browser := newBrowser(t, p, harness.Laptop)
	browser.OpenAs(p.Demo.Users.Owner, p.AuthorizeURL(connector.Begin().Query))
	browser.See(`button[value="approve"]`)
	browser.EndTransitions()
	return browser.Picture()
}

// writePicture writes a picture if there is a folder for it.
func writePicture(t *testing.T, name string, picture []byte) {
	t.Helper()
	if *screenshots != "" {
		must(t, os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o644))
	}
}

var notInFileNames = regexp.MustCompile(`[^a-z0-9]+`)

// fileName returns the name of a page, or its path, as a part of a file name.
func fileName(page string) string {
	page, _, _ = strings.Cut(page, "?")
	if host, path, found := strings.Cut(page, "/"); found && strings.Contains(host, ":") {
		page = path
	}
	return strings.Trim(notInFileNames.ReplaceAllString(strings.ToLower(page), "-"), "-")
}
