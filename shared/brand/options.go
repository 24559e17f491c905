package brand

import (
	"bytes"
	_ "embed"
	"encoding/xml"
	"errors"
	"os"
	"strings"

	"github.com/almonerhq/almoner/shared/displayname"
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
	var mistakes []error
	if message := displayname.Check(o.BrandName, maxName); o.BrandName != "" && message != "" {
		mistakes = append(mistakes, errors.New("ALMONER_BRAND_NAME is not valid: "+message))
	}
	if colour, err := Parse(o.BrandColour); o.BrandColour == "" {
		// Almoner's
	} else if err != nil {
		mistakes = append(mistakes, errors.New("ALMONER_BRAND_COLOUR must be a colour like #1f5f54"))
	} else if Contrast(colour, white) < minContrast {
		mistakes = append(
			mistakes,
			errors.New("ALMONER_BRAND_COLOUR is too light: white text on it must have a contrast of at least 4.5:1. "+
				"Choose a darker colour"),
		)
	}
	if _, err := o.readLogo(); err != nil {
		mistakes = append(mistakes, err)
	}
	return mistakes
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

// Read returns the brand. It reads the file of the logo.
func (o *Options) Read() (Brand, error) {
	b := Brand{name: o.BrandName}
	if o.BrandColour != "" && o.BrandColour != defaultColour {
		colour, err := Parse(o.BrandColour)
		if err != nil {
			return Brand{}, err
		}
		b.colour = &colour
	}
	var err error
	b.logo, err = o.readLogo()
	return b, err
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
