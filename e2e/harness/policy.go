package harness

import (
	"net/http"
	"testing"
)

// LimitConnectors sets the workspace's connector policy in the settings and confirms the warning. It returns the text
// of the warning page, or "".
func (p *Product) LimitConnectors(
	t *testing.T,
	ws TestWorkspace,
	days string,
	platforms, permissions []string,
) string {
	t.Helper()
	owner := p.Person(t, ws.Owner)
	page := owner.Arrive(t, p.AppURL+"/settings/connectors?tenant="+ws.Workspace.ID)
	form := page.FormWith(t, "input#days")
	form.Fields["platforms"], form.Fields["permissions"] = platforms, permissions
	form.Fields.Set("days", days)
	warned, answer := "", owner.Submit(t, form)
	if answer.Status == http.StatusOK {
		warned = answer.Text()
		answer = owner.Submit(t, answer.FormWith(t, "input[name=confirm]"))
	}
	owner.Follow(t, answer).WantsText(t, "The policy of "+ws.Workspace.Name+" was saved.")
	return warned
}
