// Package apidoc answers: what does this API offer, to programs and to people?
//
// It serves the one description that package openapi holds, as it is and as a page. Both are made once, at the start,
// and are the same for everybody. The page has no script and loads nothing, neither from here nor from elsewhere.
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

// Where the description is, below the base address.
const (
	JSONPath = "/v1/openapi.json"
	PagePath = "/v1/docs"
)

// An Endpoint makes the handlers.
type Endpoint struct{ json, page []byte }

// New makes the description of the API at baseURL, which has no trailing slash.
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

// JSON answers GET of the description for programs. Tools on any website may read it.
func (e *Endpoint) JSON() http.Handler {
	return file(e.json, map[string]string{"Content-Type": "application/json", "Access-Control-Allow-Origin": "*"})
}

// Page answers GET of the description for people.
func (e *Endpoint) Page() http.Handler {
	return file(e.page, map[string]string{
		"Content-Type": "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; style-src '" + styleHash() + "'; img-src data:; base-uri " +
			"'none'; form-action 'none'; frame-ancestors 'none'",
		"Referrer-Policy": "no-referrer",
	})
}

// styleHash names the one style that the page may have (Content Security Policy Level 3, section 2.3.1).
func styleHash() string {
	sum := sha256.Sum256([]byte(style))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// file serves content for five minutes without asking again.
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
