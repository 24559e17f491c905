// Package apidoc serves the OpenAPI description of package openapi, as JSON and as an HTML page.
//
// Both are built once at startup and are the same for every caller. The page has no script and loads no resources.
package apidoc

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/shared/openapi"
)

// Paths of the description, below the base address.
const (
	JSONPath = "/v1/openapi.json"
	PagePath = "/v1/docs"
)

// An Endpoint makes the handlers.
type Endpoint struct{ json, page []byte }

// New builds the description of the API at baseURL, which has no trailing slash.
func New(baseURL string) (*Endpoint, error) {
	document, err := openapi.New(baseURL)
	if err != nil {
		return nil, err
	}
	page, err := render(document, baseURL)
	if err != nil {
		return nil, err
	}
	return &Endpoint{document.JSON(), page}, nil
}

// Routes returns the handlers of the description by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{JSONPath: {"GET": e.JSON()}, PagePath: {"GET": e.Page()}}
}

// JSON handles GET of the JSON description. Scripts of any origin may read it.
func (e *Endpoint) JSON() http.Handler {
	return file(e.json, map[string]string{"Content-Type": "application/json", "Access-Control-Allow-Origin": "*"})
}

// Page handles GET of the HTML description.
func (e *Endpoint) Page() http.Handler {
	return file(e.page, map[string]string{
		"Content-Type": "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; style-src '" + styleHash() + "'; img-src data:; base-uri " +
			"'none'; form-action 'none'; frame-ancestors 'none'",
		"Referrer-Policy": "no-referrer",
	})
}

// styleHash returns the hash of the one style allowed by the policy (Content Security Policy Level 3, section 2.3.1).
func styleHash() string {
	sum := sha256.Sum256([]byte(style))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// file serves content that clients may cache for five minutes.
func file(content []byte, header map[string]string) http.Handler {
	sum := sha256.Sum256(content)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.Header().Set("ETag", tag)
		w.Header().Set("Cache-Control", "public, max-age=300")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}
