// Package brand has the name, the colour and the logo of a deployment, which its pages show, and the sizes, colours and
// fonts of the pages of both services.
//
// Both services embed Options in their configuration and call Read at startup. Pages use the colour of a deployment or
// a website only through Accent, which ensures enough contrast.
package brand

import (
	"bytes"
	_ "embed"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/shared/contract/displayname"
)

// DefaultName is the name of a deployment that sets none.
const DefaultName = "Almoner"

const (
	defaultColour = "#1f5f54" // also the background of logo.svg
	maxName       = 40        // characters
	maxLogo       = 32 << 10  // bytes
)

// Options are the settings of the brand. The configuration of a service embeds them.
type Options struct {
	BrandName   string `env:"ALMONER_BRAND_NAME" envDefault:"Almoner" doc:"Name that pages show, up to 40 characters."`
	BrandColour string `env:"ALMONER_BRAND_COLOUR" envDefault:"#1f5f54" doc:"Colour of buttons and links, like #1f5f54. It must have a contrast of at least 4.5:1 with white. Dark pages use a lighter shade of it."`
	BrandLogo   string `env:"ALMONER_BRAND_LOGO" doc:"File with the logo, which is the icon in the browser's tab too: a square SVG or PNG of up to 32 KiB. Empty: the logo of Almoner in the brand's colour."`
}

// Check reports settings that are not valid, without quoting their values. An empty setting means Almoner's default.
func (o *Options) Check() []error {
	_, mistakes := o.read()
	return mistakes
}

// Read returns the brand. It reads the file of the logo.
func (o *Options) Read() (Brand, error) {
	b, mistakes := o.read()
	return b, errors.Join(mistakes...)
}

func (o *Options) read() (b Brand, mistakes []error) {
	b.name = o.BrandName
	if message := displayname.Check(o.BrandName, maxName); o.BrandName != "" && message != "" {
		mistakes = append(mistakes, errors.New("ALMONER_BRAND_NAME is not valid: "+message))
	}
	if o.BrandColour != "" && o.BrandColour != defaultColour {
		colour, err := Parse(o.BrandColour)
		b.colour = &colour
		if err != nil {
			mistakes = append(mistakes, errors.New("ALMONER_BRAND_COLOUR must be a colour like #1f5f54"))
		} else if Contrast(colour, white) < minContrast {
			mistakes = append(mistakes, errors.New("ALMONER_BRAND_COLOUR is too light: white text on it must have a "+
				"contrast of at least 4.5:1. Choose a darker colour"))
		}
	}
	logo, err := o.readLogo()
	if err != nil {
		mistakes = append(mistakes, err)
	}
	b.logo = logo
	return b, mistakes
}

// A Brand is what the pages of a deployment show. The zero value is the brand of Almoner.
type Brand struct {
	name   string
	colour *Colour // nil for Almoner's
	logo   Logo
}

// A Logo is the content of an image file.
type Logo struct {
	Content     []byte
	ContentType string
}

// Name returns the name of the deployment.
func (b Brand) Name() string {
	if b.name == "" {
		return DefaultName
	}
	return b.name
}

// Colour returns the colour of the deployment, and false if it is Almoner's default.
func (b Brand) Colour() (colour Colour, own bool) {
	if b.colour == nil {
		return Colour{0x1f, 0x5f, 0x54}, false
	}
	return *b.colour, true
}

//go:embed logo.svg
var ownLogo string

// Logo returns the logo of the deployment. The default is Almoner's logo in the colour of the deployment.
func (b Brand) Logo() Logo {
	if len(b.logo.Content) > 0 {
		return b.logo
	}
	text := ownLogo
	if b.colour != nil {
		text = strings.ReplaceAll(text, defaultColour, b.colour.String())
	}
	return Logo{[]byte(text), typeSVG}
}

const (
	typeSVG = "image/svg+xml"
	typePNG = "image/png"
)

// readLogo returns a Logo without content if no file is set.
func (o *Options) readLogo() (Logo, error) {
	if o.BrandLogo == "" {
		return Logo{}, nil
	}
	info, err := os.Stat(o.BrandLogo)
	if err != nil || !info.Mode().IsRegular() {
		return Logo{}, errors.New("ALMONER_BRAND_LOGO cannot be read")
	}
	invalid := errors.New("ALMONER_BRAND_LOGO must be an SVG or PNG file of up to 32 KiB")
	if info.Size() > maxLogo {
		return Logo{}, invalid
	}
	content, err := os.ReadFile(o.BrandLogo)
	switch {
	case err != nil:
		return Logo{}, errors.New("ALMONER_BRAND_LOGO cannot be read")
	case bytes.HasPrefix(content, []byte("\x89PNG\r\n\x1a\n")):
		return Logo{content, typePNG}, nil
	case isSVG(content):
		return Logo{content, typeSVG}, nil
	}
	return Logo{}, invalid
}

// isSVG reports whether the content is an XML document whose root is svg.
func isSVG(content []byte) bool {
	decoder := xml.NewDecoder(bytes.NewReader(content))
	for {
		token, err := decoder.Token()
		if err != nil {
			return false
		}
		if start, isElement := token.(xml.StartElement); isElement {
			return start.Name == xml.Name{Space: "http://www.w3.org/2000/svg", Local: "svg"} && decoder.Skip() == nil
		}
	}
}

// minContrast is the minimum contrast of text (WCAG 2.2, success criterion 1.4.3).
const minContrast = 4.5

// A Colour is an opaque colour in sRGB.
type Colour struct{ red, green, blue uint8 }

var (
	white = Colour{255, 255, 255}
	black = Colour{0, 0, 0}
)

// Backgrounds on which an accent has the least contrast: the darkest one of light pages and the lightest one of dark
// pages. The style sheets define them as --sunken.
var (
	LightGround = Colour{0xf0, 0xf2, 0xf0}
	DarkGround  = Colour{0x1e, 0x26, 0x23}
)

// Parse parses a colour of 3 or 6 hexadecimal digits, with or without a leading "#".
func Parse(text string) (Colour, error) {
	digits := strings.TrimPrefix(text, "#")
	if len(digits) == 3 {
		digits = string([]byte{digits[0], digits[0], digits[1], digits[1], digits[2], digits[2]})
	}
	number, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || len(digits) != 6 {
		return Colour{}, errors.New("not a colour")
	}
	return Colour{uint8(number >> 16), uint8(number >> 8), uint8(number)}, nil
}

// String returns the colour as "#" and 6 hexadecimal digits, such as "#1f5f54".
func (c Colour) String() string { return fmt.Sprintf("#%02x%02x%02x", c.red, c.green, c.blue) }

// Contrast returns the contrast ratio of two colours, 1 to 21 (WCAG 2.2).
func Contrast(a, b Colour) float64 {
	lighter, darker := a.luminance(), b.luminance()
	if lighter < darker {
		lighter, darker = darker, lighter
	}
	return (lighter + 0.05) / (darker + 0.05)
}

func (c Colour) luminance() float64 {
	linear := func(channel uint8) float64 {
		value := float64(channel) / 255
		if value <= 0.04045 {
			return value / 12.92
		}
		return math.Pow((value+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c.red) + 0.7152*linear(c.green) + 0.0722*linear(c.blue)
}

// mix returns a mixture of c and other. share is the part of other, 0 to 1.
func (c Colour) mix(other Colour, share float64) Colour {
	channel := func(a, b uint8) uint8 { return uint8(math.Round(float64(a) + (float64(b)-float64(a))*share)) }
	return Colour{channel(c.red, other.red), channel(c.green, other.green), channel(c.blue, other.blue)}
}

// An Accent is a colour together with its variants for one background.
type Accent struct {
	Ink    Colour // links and borders: a shade of the colour with enough contrast to the background
	Fill   Colour // background of buttons: the colour itself
	Strong Colour // background of a button under the pointer
	On     Colour // text on Fill and Strong
}

// steps is the number of shades that Accent tries.
const steps = 50

// Accent returns the accent of c on a background. Ink on the background and On on Fill have a contrast of at least
// 4.5:1.
func (c Colour) Accent(ground Colour) Accent {
	a := Accent{Ink: c, Fill: c, Strong: c.mix(black, 0.15), On: white}
	if Contrast(c, black) > Contrast(c, white) { // the better one has at least 4.58:1
		a.Strong, a.On = c.mix(white, 0.15), black
	}
	away := black
	if Contrast(ground, white) > Contrast(ground, black) {
		away = white
	}
	for step := 1; step <= steps && Contrast(a.Ink, ground) < minContrast; step++ {
		a.Ink = c.mix(away, float64(step)/steps)
	}
	return a
}

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

// A Palette is the colours of one scheme, for mails, whose programs know no custom properties.
type Palette struct {
	Ink, Soft, Paper, Card, Line Colour
	Button, On, Link             Colour // of the deployment
}

// Palette returns the colours of the scheme with this ground. They are those of the tokens.
func (b Brand) Palette(ground Colour) Palette {
	sheet := tokens
	if ground == DarkGround {
		sheet = dark
	}
	token := func(name string) Colour {
		_, value, _ := strings.Cut(sheet, "--"+name+": ")
		colour, err := Parse(value[:min(len(value), len("#rrggbb"))])
		if err != nil {
			panic("no colour " + name + " in the tokens")
		}
		return colour
	}
	p := Palette{
		Ink:    token("ink"),
		Soft:   token("ink-soft"),
		Paper:  token("paper"),
		Card:   token("card"),
		Line:   token("line"),
		Button: token("brand"),
		On:     token("on-brand"),
		Link:   token("link"),
	}
	if colour, own := b.Colour(); own {
		p.Button = colour.Accent(ground).Ink
		p.On, p.Link = p.Button.Accent(ground).On, p.Button
	}
	return p
}
