package e2e

import (
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
	p, site := enterWithDocuments(t)
	owner, landing := p.Demo.Users.Owner, newLanding(t)
	client := p.DocumentClient(site.Client("/oauth/browser", []string{"http://127.0.0.1/callback"}, nil), landing.uri,
		p.BaseURL+"/mcp")
	attempt := client.Begin()
	browser := newBrowser(t, p, harness.Narrowest)
	browser.Open(p.AuthorizeURL(attempt.Query))
	browser.SignIn(owner.Email, owner.Password)
	browser.See("input[name=workspace]")
	if harness.Evaluate[bool](browser, `document.querySelector("input[name=workspace]:checked") !== null`) {
		t.Error("a workspace is preselected")
	}
	looks(t, "choice", browser, harness.Laptop, harness.Telephone, harness.Narrowest)
	choice := `input[name=workspace][value="` + p.Demo.Workspaces.Empty.ID + `"]`
	// On the narrowest screen, the bar with the buttons may cover it.
	harness.Evaluate[bool](browser, `document.querySelector('`+choice+`').scrollIntoView({block: "center"}), true`)
	browser.Click(choice)
	browser.Press(EnterKey)
	browser.See(approveButton)
	for _, screen := range []harness.Screen{harness.Laptop, harness.Telephone, harness.Narrowest} {
		looks(t, "consent", browser, screen)
		if screen != harness.Narrowest && !harness.Evaluate[bool](browser, warningInView) {
			t.Errorf("%d pixels: the warning about the user's own computer is out of view", screen.Width)
		}
	}
	wantsText(t, "the consent page", browser, p.Demo.Workspaces.Empty.Name)
	browser.Click(approveButton)
	tokens := attempt.Post(t, attempt.CodeForm(landing.wait(t).Get("code"))).Tokens(t)
	if tokens.WorkspaceID != p.Demo.Workspaces.Empty.ID {
		t.Errorf("the token is for %s", tokens.WorkspaceID)
	}
	silent(t, browser)
}
