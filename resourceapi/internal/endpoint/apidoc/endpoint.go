// Package apidoc serves the OpenAPI description of package openapi, as JSON and as an HTML page.
//
// Both are built once at startup and are the same for every caller. The page works without its script, which adds a
// filter, copy buttons and requests with a token that the user pastes. The script stores the token in sessionStorage
// and sends it only to this API. The page's Content-Security-Policy allows no other host.
package apidoc

import (
	"net/http"

	"github.com/almonerhq/almoner/shared/brand"
	"github.com/almonerhq/almoner/shared/openapi"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/ui"
)

// Paths of the description, below the base address.
const (
	JSONPath = "/v1/openapi.json"
	PagePath = "/v1/docs"
)

// An Endpoint makes the handlers.
type Endpoint struct {
	json, page []byte
	policy     string
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
	return &Endpoint{document.JSON(), page, policy}, nil
}

// Routes returns the handlers of the description by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{
		JSONPath: {"GET": e.JSON()},
		PagePath: {"GET": e.Page()},
	}
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
