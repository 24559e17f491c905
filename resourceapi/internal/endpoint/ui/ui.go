// Package ui has the shared parts of this service's pages: the deployment's accent, and static files.
package ui

import (
	"github.com/almonerhq/almoner/shared/brand"
	"github.com/almonerhq/almoner/shared/pagestyle"
)

// Accent returns a style sheet that sets the colour of buttons to c, and the colour of links and borders to a readable
// shade of c. It follows pagestyle.Tokens.
func Accent(c brand.Colour) string {
	declare := func(ground brand.Colour) string {
		a := c.Accent(ground)
		return "--link:" + a.Ink.String() + ";--brand:" + a.Fill.String() +
			";--brand-strong:" + a.Strong.String() + ";--on-brand:" + a.On.String()
	}
	return pagestyle.Override(declare(brand.LightGround), declare(brand.DarkGround))
}
