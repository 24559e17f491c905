package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Contract, section 6: each rule for public forms, tested against the two binaries.

const website = "https://www.canal-lane.example"

// newForm creates a form in the workspace that one website may use, and returns it with its public path.
func newForm(t *testing.T, p *harness.Product, ws harness.TestWorkspace) (client.Form, string) {
	t.Helper()
	form, err := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Forms.Create(t.Context(), client.NewForm{
		Title: "Volunteer", AllowedOrigins: []string{website}, Fields: []client.Field{
			{Name: "name", Label: "Your name", Type: "text", Required: true},
			{Name: "email", Label: "E-mail", Type: "email", Required: true},
			{Name: "area", Label: "Where", Type: "select", Options: []string{"Kitchen", "Garden"}},
			{Name: "privacy", Label: "I agree that my answers are kept for a year.", Type: "consent", Required: true},
		},
	})
	mustRedacted(t, err)
	return form, "/v1/engage/public/forms/" + form.EmbedKey
}

func helper() map[string]any {
	return map[string]any{"name": "Ada Okafor", "email": "ada@example.org", "privacy": true}
}

func submissions(t *testing.T, p *harness.Product, form client.Form) int {
	t.Helper()
	return p.Database.Count(t, `select count(*) from resource.submissions where form_id = $1`, form.ID)
}

// The form works without script: on a phone it is corrected and sent, and shows its result.
func TestBrowser_SubmitsFormWithoutScript(t *testing.T) {
	t.Parallel()
	p := enter(t)
	form, path := newForm(t, p, p.NewWorkspace(t))
	browser := newBrowser(t, p, harness.Telephone)
	browser.WithoutScript()
	browser.Open(p.BaseURL + path + "/embed")
	browser.Fill("#f0", "Ada Okafor")
	browser.Click("button[type=submit]")
	browser.See(".alert")
	if shown := browser.Text(); !strings.Contains(shown, "Please correct 2 answers") {
		t.Errorf("%s", shown)
	}
	browser.Fill("#f1", "ada@example.org")
	browser.Click("#f3")
	time.Sleep(2 * time.Second) // faster submissions are rejected
	browser.Click("button[type=submit]")
	browser.See(".thanks")
	// The page reloads itself until it can show the result. During a reload there is no document for a moment.
	const text = `document.body ? document.body.innerText : ""`
	done := func() bool { return strings.Contains(harness.Evaluate[string](browser, text), "have processed them") }
	await.True(t, "the page shows the result", done)
	if n := submissions(t, p, form); n != 1 {
		t.Errorf("%d submissions stored, want 1", n)
	}
	if hosts := browser.Hosts(); len(hosts) != 1 {
		t.Errorf("requests went to %v", hosts)
	}
}
