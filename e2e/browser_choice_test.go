package e2e

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The page on which a user chooses the workspace for a client that belongs to no workspace.

// warningInView reports whether the warning is completely in the window and nothing covers it.
const warningInView = `(() => {
	scrollTo(0, 0);
	const e = document.querySelector(".alert-warn"), box = e.getBoundingClientRect();
	const shown = y => e.contains(document.elementFromPoint(box.x + 20, y));
	return e.textContent.includes("an app on this computer") && shown(box.top + 3) && shown(box.bottom - 3);
})()`

func TestBrowser_ChoosesWorkspace(t *testing.T) {
	t.Parallel()
	p, site := enterWithDocuments(t, "claude")
	owner := p.Demo.Users.Owner
	for _, screen := range []harness.Screen{harness.Laptop, harness.Telephone, harness.Narrowest} {
		landing := newLanding(t)
		client := p.DocumentClient(site.Client("/oauth/browser", []string{"http://127.0.0.1/callback"}, nil),
			landing.uri, p.BaseURL+"/mcp")
		attempt := client.Begin()
		browser := newBrowser(t, p, screen)
		browser.Open(p.AuthorizeURL(attempt.Query))
		browser.SignIn(owner.Email, owner.Password)
		browser.See("input[name=workspace]")
		if harness.Evaluate[bool](browser, `document.querySelector("input[name=workspace]:checked") !== null`) {
			t.Error("a workspace is preselected")
		}
		look := func(page string) {
			for _, fault := range harness.Evaluate[[]string](browser, layoutFaults) {
				t.Errorf("%s at %d pixels: %s", page, screen.Width, fault)
			}
		}
		look("choice")
		choice := `input[name=workspace][value="` + p.Demo.Workspaces.Empty.ID + `"]`
		// On the narrowest screen, the bar with the buttons may cover it.
		harness.Evaluate[bool](browser, `document.querySelector('`+choice+`').scrollIntoView({block: "center"}), true`)
		browser.Click(choice)
		browser.Press(EnterKey)
		browser.See(approveButton)
		look("consent")
		if screen != harness.Narrowest && !harness.Evaluate[bool](browser, warningInView) {
			t.Errorf("%d pixels: the warning about the user's own computer is out of view", screen.Width)
		}
		if text := browser.Text(); !strings.Contains(text, p.Demo.Workspaces.Empty.Name) {
			t.Errorf("the consent page does not name the workspace: %s", text)
		}
		browser.Click(approveButton)
		tokens := attempt.Post(t, attempt.CodeForm(landing.wait(t).Get("code"))).Tokens(t)
		if tokens.WorkspaceID != p.Demo.Workspaces.Empty.ID {
			t.Errorf("the token is for %s", tokens.WorkspaceID)
		}
		if complaints := browser.Complaints(); len(complaints) > 0 {
			t.Errorf("errors on the console: %v", complaints)
		}
	}
}
