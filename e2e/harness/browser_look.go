package harness

import (
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// Scheme sets the colour scheme that the browser prefers: "light" or "dark".
func (b *Browser) Scheme(scheme string) {
	b.t.Helper()
	parameters := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}
	if _, err := chromedp.Call(b.window, emulation.SetEmulatedMedia, parameters); err != nil {
		b.t.Fatalf("set the scheme: %v", err)
	}
}

// TransferSize returns the number of bytes transferred for the page and its files.
func (b *Browser) TransferSize() int {
	b.t.Helper()
	return Evaluate[int](b, `["navigation", "resource"].flatMap(kind => performance.getEntriesByType(kind))
		.reduce((sum, entry) => sum + entry.transferSize, 0)`)
}

// Overflow returns by how many pixels the page is wider than the screen.
func (b *Browser) Overflow() int {
	b.t.Helper()
	return Evaluate[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`)
}

// TimeZone sets the time zone of the pages, like Europe/London.
func (b *Browser) TimeZone(name string) {
	b.t.Helper()
	parameters := emulation.SetTimezoneOverrideParams{TimezoneID: name}
	if _, err := chromedp.Call(b.window, emulation.SetTimezoneOverride, parameters); err != nil {
		b.t.Fatalf("set the time zone: %v", err)
	}
}
