// Package pagestyle has the sizes, colours and fonts of the pages of both services.
package pagestyle

import (
	_ "embed"
	"strings"
)

//go:embed tokens.css
var tokens string

//go:embed dark.css
var dark string

// Tokens returns the style sheet that defines the custom properties of every page. A page's own styles follow it.
func Tokens() string { return strings.ReplaceAll(tokens, "@dark;", strings.TrimRight(dark, "\n")) }

// Override returns a style sheet that sets the custom properties of light, and in the dark scheme those of dark. It
// must follow Tokens.
func Override(light, dark string) string {
	inDark := "{" + dark + "}"
	return ":root{" + light + "}@media (prefers-color-scheme:dark){:root:not([data-theme=light])" + inDark +
		"}:root[data-theme=dark]" + inDark
}
