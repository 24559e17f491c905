package publicforms

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"net/http"
	"time"
)

//go:embed assets/embed.js
var embedJS []byte

//go:embed assets/embed.css
var embedCSS []byte

//go:embed assets/height.js
var heightJS []byte

// Script answers GET of embed.js, which puts a form on any site.
func (e *Endpoint) Script() http.Handler { return asset("text/javascript; charset=utf-8", embedJS) }

// Style answers GET of the page's style sheet.
func (e *Endpoint) Style() http.Handler { return asset("text/css; charset=utf-8", embedCSS) }

// Height answers GET of the page's script, which tells the frame around it how high it is.
func (e *Endpoint) Height() http.Handler { return asset("text/javascript; charset=utf-8", heightJS) }

// asset serves a file that is public and the same for everybody, for five minutes without asking again.
func asset(contentType string, content []byte) http.Handler {
	sum := sha256.Sum256(content)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("ETag", tag)
		w.Header().Set("Cache-Control", "public, max-age=300")
		w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}
