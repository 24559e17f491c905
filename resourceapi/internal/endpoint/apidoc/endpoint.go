// Package apidoc serves the OpenAPI description of package openapi, as JSON and as an HTML page.
//
// Both are built once at startup and are the same for every caller. The page works without its script, which adds a
// filter, copy buttons and requests with a token that the user pastes. The script stores the token in sessionStorage
// and sends it only to this API. The page's Content-Security-Policy allows no other host.
package apidoc

import (
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/shared/brand"
	"github.com/almonerhq/almoner/shared/openapi"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/ui"
)

// Paths of the description, below the base address.
const (
	RootPath = "/"
	JSONPath = "/v1/openapi.json"
	PagePath = "/v1/docs"
)

// An Endpoint makes the handlers.
type Endpoint struct {
	json, page []byte
	policy     string
	root       root
}

// root is the response to a program that requests the base address.
type root struct {
	Name          string `json:"name"`
	Documentation string `json:"documentation"`
	OpenAPI       string `json:"openapi"`
	MCP           string `json:"mcp"`
}

// logoPath is the path of the logo, which package publicforms serves.
const logoPath = "/v1/engage/public/logo"

// New builds the description of the API at baseURL, which has no trailing slash.
func New(baseURL string, b brand.Brand) (*Endpoint, error) {
	document, err := openapi.New(baseURL)
	if err != nil {
		return nil, err
	}
	page, err := render(document, baseURL, b)
	if err != nil {
		return nil, err
	}
	policy := "default-src 'none'; style-src " + ui.Hash(style(b)) + "; script-src " + ui.Hash(script) +
		"; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return &Endpoint{document.JSON(), page, policy, root{
		Name:          b.Name() + " API",
		Documentation: baseURL + PagePath,
		OpenAPI:       baseURL + JSONPath,
		MCP:           baseURL + string(perm.MCP),
	}}, nil
}

// Routes returns the handlers of the description by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{
		RootPath: {"GET": e.Root()},
		JSONPath: {"GET": e.JSON()},
		PagePath: {"GET": e.Page()},
	}
}

// Root handles GET of the base address. A browser is redirected to the page; a program gets the addresses as JSON.
func (e *Endpoint) Root() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/html") {
			w.Header().Set("Location", e.root.Documentation)
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		web.JSON(w, http.StatusOK, e.root)
	})
}

// JSON handles GET of the JSON description. Scripts of any origin may read it.
func (e *Endpoint) JSON() http.Handler {
	return ui.File(e.json, map[string]string{"Content-Type": "application/json", "Access-Control-Allow-Origin": "*"})
}

// Page handles GET of the HTML description.
func (e *Endpoint) Page() http.Handler {
	return ui.File(e.page, map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": e.policy,
		"Referrer-Policy":         "no-referrer",
	})
}
