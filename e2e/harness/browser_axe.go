package harness

import (
	"context"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/almonerhq/almoner/e2e/axe"
)

// Show changes the size of the window and the colours that the user prefers: "light" or "dark".
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

// violationsScript runs axe-core and reports each element that violates one. Transitions end first:
// the colours in the middle of one are not those of the page.
const violationsScript = `(async () => {
	for (const a of document.getAnimations()) a.finish();
	const options = { resultTypes: ["violations"] };
	if (%t) options.runOnly = ["color-contrast", "link-in-text-block"];
	const result = await axe.run(document, options);
	return result.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.failureSummary + " " + n.html));
})()`

// axePatience is longer than browserPatience: axe-core needs the processor, which other tests use too.
const axePatience = 2 * time.Minute

// Violations returns what axe-core finds wrong with the page, or only with its colours.
func (b *Browser) Violations(onlyColours bool) []string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.window, axePatience)
	defer cancel()
	if !Evaluate[bool](b, `typeof axe !== "undefined"`) {
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](axe.Script+";true")); err != nil {
			b.t.Fatalf("load axe-core: %v", err)
		}
	}
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](
		fmt.Sprintf(violationsScript, onlyColours),
		chromedp.EvalAwaitPromise,
	))
	if err != nil {
		b.t.Fatalf("run axe-core: %v", err)
	}
	return found
}
