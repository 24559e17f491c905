package ui

import (
	"bytes"

	"github.com/almonerhq/almoner/shared/brand"
	"github.com/almonerhq/almoner/shared/pagestyle"
)

// SetBrand makes the pages show the name, the logo and the colour of a deployment. It is called before any page is
// shown.
func (p *Pages) SetBrand(b brand.Brand) {
	p.brand = b
	logo := b.Logo()
	icon := newStaticFile(logo.Content)
	icon.contentType = logo.ContentType
	p.files[iconFile] = icon
	if colour, own := b.Colour(); own {
		sheet := bytes.Clone(p.files[sheetFile].content)
		p.files[sheetFile] = newStaticFile(append(sheet, accent(colour)...))
	}
}

const (
	iconFile  = "icon.svg"
	sheetFile = "site.css"
)

// accent returns a style sheet that replaces the colour of buttons and links by shades of c that can be read on both
// grounds.
func accent(c brand.Colour) string {
	declare := func(ground brand.Colour) string {
		ink := c.Accent(ground).Ink
		button := ink.Accent(ground)
		return "--brand:" + ink.String() + ";--brand-strong:" + button.Strong.String() + ";--on-brand:" +
			button.On.String() + ";--link:" + ink.String()
	}
	return pagestyle.Override(declare(brand.LightGround), declare(brand.DarkGround))
}
