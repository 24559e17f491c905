package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

var screenshots = flag.String("screenshots", "", "write pictures of all pages to this folder")

// TestScreenshots is `make screenshots`. It writes a picture of each page on both sizes of the window in light and in
// dark colours, and one of the whole page with all details opened, if that is higher than the window.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("run make screenshots")
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
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
	browser.Open(p.AuthorizeURL(connector.Begin().Query))
	browser.SignIn(p.Demo.Users.Owner.Email, p.Demo.Users.Owner.Password)
	browser.See(`button[value="approve"]`)
	browser.EndTransitions()
	return browser.Picture()
}

func writePicture(t *testing.T, name string, picture []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o644); err != nil {
		t.Fatal(err)
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
