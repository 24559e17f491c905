// Package apidoc serves the OpenAPI description of package openapi, as JSON and as an HTML page.
//
// Both are built at the first request for one of them and are the same for every caller. The page works without its
// script, which adds a filter, copy buttons and requests with a token that the user pastes. The script stores the token
// in sessionStorage and sends it only to this API. The page's Content-Security-Policy allows no other host.
package apidoc

import (
	"net/http"
	"sync"

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
	handlers func() handlers
}

type handlers struct{ json, page http.Handler }

// logoPath is the path of the logo, which package publicforms serves.
const logoPath = "/v1/engage/public/logo"

// New describes the API at baseURL, which has no trailing slash. The description is built at the first request, since
// that takes longer than the rest of the start of a process.
func New(baseURL string, b brand.Brand) *Endpoint {
	return &Endpoint{sync.OnceValue(func() handlers {
		built, err := build(baseURL, b)
		if err != nil {
			panic(err) // only if the embedded description is invalid
		}
		return built
	})}
}

// build returns handlers that serve the description. Scripts of any origin may read the JSON.
func build(baseURL string, b brand.Brand) (handlers, error) {
	document, err := openapi.New(baseURL)
	if err != nil {
		return handlers{}, err
	}
	page, err := render(document, baseURL, b)
	if err != nil {
		return handlers{}, err
	}
	policy := "default-src 'none'; style-src " + ui.Hash(style(b)) + "; script-src " + ui.Hash(script) +
		"; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return handlers{
		json: ui.File(document.JSON(), map[string]string{
			"Content-Type":                "application/json",
			"Access-Control-Allow-Origin": "*",
		}),
		page: ui.File(page, map[string]string{
			"Content-Type":            "text/html; charset=utf-8",
			"Content-Security-Policy": policy,
			"Referrer-Policy":         "no-referrer",
		}),
	}, nil
}

// Routes returns the handlers of the description by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{
		JSONPath: {"GET": e.JSON()},
		PagePath: {"GET": e.Page()},
	}
}

// JSON handles GET of the JSON description.
func (e *Endpoint) JSON() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.handlers().json.ServeHTTP(w, r) })
}

// Page handles GET of the HTML description.
func (e *Endpoint) Page() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.handlers().page.ServeHTTP(w, r) })
}
