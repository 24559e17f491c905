package harness

import (
	"context"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/almonerhq/almoner/e2e/axe"
)

// Show sets the size of the window and the colour scheme that the user prefers: "light" or "dark".
func (b *Browser) Show(screen Screen, colours string) {
	b.t.Helper()
	b.do("resize the window", chromedp.EmulateViewport(screen.Width, screen.Height))
	parameters := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}},
	}
	if _, err := chromedp.Call(b.window, emulation.SetEmulatedMedia, parameters); err != nil {
		b.t.Fatalf("prefer %s colours: %v", colours, err)
	}
}

// violationsScript runs axe-core and reports each element that violates a rule. It waits for the end of transitions,
// because they change colours. Contrast depends on the styles of an element and of its ancestors. Of the visible
// elements with text whose styles and ancestors' styles are equal, only the first is checked for contrast, because the
// API documentation has very many.
const violationsScript = `(async () => {
	for (const a of document.getAnimations()) a.finish();
	const styles = new Map([[null, ""]]), seen = new Set();
	for (const e of document.querySelectorAll("*")) {
		const s = getComputedStyle(e);
		const own = [s.color, s.backgroundColor, s.backgroundImage, s.opacity, s.fontSize, s.fontWeight, s.display];
		const all = styles.get(e.parentElement) + "/" + own;
		styles.set(e, all);
		const text = e.matches("input, select, textarea") ||
			[...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim());
		const shown = text && e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
			e.getBoundingClientRect().width > 1; // narrower text is for screen readers only
		e.toggleAttribute("data-contrast", shown && !seen.has(all));
		if (shown) seen.add(all);
	}
	axe.configure({ rules: [{ id: "color-contrast", selector: "[data-contrast]" }] });
	const result = await axe.run(document, { resultTypes: ["violations"] });
	return result.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.failureSummary + " " + n.html));
})()`

// Violations returns the violations that axe-core finds in the page.
func (b *Browser) Violations() []string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.window, browserTimeout)
	defer cancel()
	if !Evaluate[bool](b, `typeof axe !== "undefined"`) {
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](axe.Script+";true")); err != nil {
			b.t.Fatalf("load axe-core: %v", err)
		}
	}
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](violationsScript, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("run axe-core: %v", err)
	}
	return found
}
