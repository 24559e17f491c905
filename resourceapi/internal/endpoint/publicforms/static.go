package publicforms

import (
	_ "embed"
	"maps"
	"net/http"

	"github.com/almonerhq/almoner/shared/pagestyle"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/ui"
)

//go:embed assets/embed.js
var embedJS []byte

//go:embed assets/embed.css
var embedCSS []byte

//go:embed assets/form.js
var formJS []byte

//go:embed assets/height.js
var heightJS []byte

// Script handles GET of embed.js, which embeds a form in a website.
func (e *Endpoint) Script() http.Handler {
	return asset("text/javascript; charset=utf-8", embedJS, nil)
}

// Style handles GET of the page's style sheet.
func (e *Endpoint) Style() http.Handler {
	return asset("text/css; charset=utf-8", append([]byte(pagestyle.Tokens()), embedCSS...), nil)
}

// FormScript handles GET of the page's script, which sends the form.
func (e *Endpoint) FormScript() http.Handler {
	return asset("text/javascript; charset=utf-8", formJS, nil)
}

// Height handles GET of the page's script, which reports the page's height and title to the frame around it.
func (e *Endpoint) Height() http.Handler {
	return asset("text/javascript; charset=utf-8", heightJS, nil)
}

// Logo handles GET of the deployment's logo. Its policy stops scripts if a browser opens an SVG as a page.
func (e *Endpoint) Logo() http.Handler {
	logo := e.Brand.Logo()
	return asset(logo.ContentType, logo.Content, map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox",
	})
}

// asset serves a public file.
func asset(contentType string, content []byte, more map[string]string) http.Handler {
	header := map[string]string{"Content-Type": contentType, "Cross-Origin-Resource-Policy": "cross-origin"}
	maps.Copy(header, more)
	return ui.File(content, header)
}
