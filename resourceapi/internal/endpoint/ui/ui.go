// Package ui has the shared parts of this service's pages: sizes, colours, the deployment's accent, and static files.
package ui

import (
	_ "embed"
	"strings"

	"github.com/almonerhq/almoner/shared/brand"
)

//go:embed assets/tokens.css
var tokens string

//go:embed assets/dark.css
var dark string

// Tokens returns the style sheet that defines the custom properties of every page. A page's own styles follow it.
func Tokens() string { return strings.ReplaceAll(tokens, "@dark;", strings.TrimRight(dark, "\n")) }

// Accent returns a style sheet that sets the colour of buttons to c, and the colour of links and borders to a readable
// shade of c. It follows Tokens.
func Accent(c brand.Colour) string {
	declare := func(ground brand.Colour) string {
		a := c.Accent(ground)
		return "--brand:" + a.Ink.String() + ";--brand-fill:" + a.Fill.String() +
			";--brand-strong:" + a.Strong.String() + ";--on-brand:" + a.On.String()
	}
	onDark := "{" + declare(brand.DarkGround) + "}"
	return ":root{" + declare(brand.LightGround) + "}@media (prefers-color-scheme:dark){:root:not([data-theme=light])" +
		onDark + "}:root[data-theme=dark]" + onDark
}
