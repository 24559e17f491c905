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

// Script handles GET of embed.js, which embeds a form in a website.
func (e *Endpoint) Script() http.Handler { return asset("text/javascript; charset=utf-8", embedJS) }

// Style handles GET of the page's style sheet.
func (e *Endpoint) Style() http.Handler { return asset("text/css; charset=utf-8", embedCSS) }

// Height handles GET of the page's script, which reports the page's height to the frame around it.
func (e *Endpoint) Height() http.Handler { return asset("text/javascript; charset=utf-8", heightJS) }

// asset serves a public file that clients may cache for five minutes.
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
