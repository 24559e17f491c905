package brand

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

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
