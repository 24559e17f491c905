package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// The connection log of a workspace: each attempt with its last step, the reason for its failure, and its request id.

func TestConnectionLog_ShowsProgressAndReason(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	log := func(c harness.Connector) harness.Page {
		t.Helper()
		return owner.Arrive(t, p.AppURL+"/settings/connectors/log?tenant="+ws.Workspace.ID+"&client="+c.ClientID).
			WantsPage(t, http.StatusOK)
	}
	// says checks that the connector's latest attempt contains the words and the request id of the answer.
	says := func(c harness.Connector, answer harness.Answer, words ...string) {
		t.Helper()
		page := log(c)
		latest := page.Find("li.attempt").First()
		text := strings.Join(strings.Fields(latest.Text()), " ")
		id := latest.Find("input[aria-label^='Request id']").AttrOr("value", "")
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("the latest attempt does not contain %q: %s", word, text)
			}
		}
		if id == "" || id != answer.Header.Get("X-Request-Id") {
			t.Errorf("request id %q, want %q: %s", id, answer.Header.Get("X-Request-Id"), text)
		}
	}
	register := func() harness.Connector { t.Helper(); return ws.Connector(t, harness.ReadProgrammes) }

	wrong := register()
	query := wrong.Begin().Query
	query.Set("redirect_uri", "https://elsewhere.example/callback")
	says(wrong, p.Person(t, ws.Owner).Open(t, p.AuthorizeURL(query)).Answer, "Refused", "not registered",
		"Requested: done", "Approved: not reached")

	verifier := register()
	attempt := verifier.Begin()
	form := attempt.CodeForm(attempt.Code(t, owner))
	form.Set("code_verifier", strings.Repeat("w", 43))
	says(verifier, verifier.Post(t, form), "Refused", "code_verifier does not match", "Approved: done",
		"Code exchanged: not reached", "Ada Okafor")

	denied := register()
	says(denied, owner.Consent(t, denied.Begin().Query).Press(t, "deny").Answer, "Denied", "did not approve")

	orphan := register()
	says(orphan, orphan.Refresh(t, "alm_rt_never_issued"), "Refused", "does not belong to a known approval",
		"The refresh token is unknown")

	replayed := register()
	tokens := replayed.Connect(t, owner)
	p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	replayed.Refresh(t, tokens.RefreshToken).Tokens(t)
	await.True(t, "the first call is recorded", func() bool { // uses are recorded in batches
		return strings.Contains(log(replayed).Text(), "First call: done")
	})
	log(replayed).WantsText(t, "Connected", "Code exchanged: done", "First call: done", "Refreshed: done")
	says(replayed, replayed.Refresh(t, tokens.RefreshToken), "Ended", "old refresh token")

	off := register()
	tokens = off.Connect(t, owner)
	p.Database.SetLLM(t, ws.Workspace, false)
	says(off, off.Refresh(t, tokens.RefreshToken), "Refused", "LLM integration off")
	says(off, owner.Arrive(t, p.AuthorizeURL(off.Begin().Query)).WantsPage(t, http.StatusForbidden).Answer, "Refused",
		"LLM integration off")

	page := owner.Arrive(t, p.AppURL+"/settings/connectors?tenant="+ws.Workspace.ID).WantsPage(t, http.StatusOK)
	page.WantsText(t, "is switched off.", "Show attempts")
	if strings.Contains(string(page.Body), "alm_") {
		t.Error("the page contains a secret")
	}
	n := p.Database.Count(t, `select count(*) from account.connection_stops s where s::text ~ 'alm_(ac|rt|cs|pat)_'`)
	if n != 0 {
		t.Error("the table contains a secret")
	}
	other := p.NewWorkspace(t)
	page = p.Person(t, other.Owner).Arrive(t, p.AppURL+"/settings/connectors?tenant="+other.Workspace.ID)
	page.WantsText(t, "No connectors")
}
