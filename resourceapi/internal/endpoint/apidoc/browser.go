package apidoc

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/page/pagestyle"
)

//go:embed assets/browser.html
var browserHTML string

var browserPage = template.Must(template.New("browser").Parse(browserHTML))

// ForBrowsers returns the handler of paths that are no routes. A browser gets a page: at / one that says what this
// service is (200), elsewhere one that says that there is nothing (404). All other requests are for next. appURL is the
// address of sign-in and settings, or empty.
func ForBrowsers(appURL string, b brand.Brand, next http.Handler) http.Handler {
	root, missing := browserFile(appURL, b, false), browserFile(appURL, b, true)
	header := pageHeader(b, "")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if r.Method != http.MethodGet && r.Method != http.MethodHead || !pagestyle.PrefersHTML(r.Header) {
			next.ServeHTTP(w, r)
			return
		}
		for name, value := range header {
			w.Header().Set(name, value)
		}
		if r.URL.Path == "/" {
			_, _ = w.Write(root) // an error means that the caller has left
			return
		}
		w.Header().Set(apierr.CodeHeader, "NOT_FOUND")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(missing)
	})
}

// browserFile returns the page of /, or the one of a path that does not exist.
func browserFile(appURL string, b brand.Brand, missing bool) []byte {
	var out bytes.Buffer
	err := browserPage.Execute(&out, map[string]any{
		"Brand":   b.Name(),
		"Logo":    logoPath,
		"Style":   template.CSS(style(b)),
		"Docs":    PagePath,
		"App":     appURL,
		"Missing": missing,
	})
	if err != nil {
		panic(err) // only for a template that does not fit
	}
	return out.Bytes()
}
