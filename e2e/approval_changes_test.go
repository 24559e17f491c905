package e2e

import (
	"net/http"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The approval uses what is true when it is sent, and grants nothing that was not on the page.

func TestApproval_RechecksAccess(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for name, c := range map[string]struct {
		change func(t *testing.T, ws harness.TestWorkspace)
	}{
		"membership":      {func(t *testing.T, o harness.TestWorkspace) { p.Database.Leave(t, o.Workspace, o.Owner) }},
		"LLM integration": {func(t *testing.T, o harness.TestWorkspace) { p.Database.SetLLM(t, o.Workspace, false) }},
		"all permissions": {func(t *testing.T, o harness.TestWorkspace) { p.Database.Permit(t, o.Workspace, o.Owner) }},
	} {
		t.Run(name, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			connector := ws.Connector(t, harness.ReadProgrammes)
			page := p.Person(t, ws.Owner).Consent(t, connector.Begin().Query)
			c.change(t, ws)
			wantsNoGrant(t, p, page.Press(t, "approve"), connector.ClientID, http.StatusForbidden)
		})
	}
	t.Run("one permission", func(t *testing.T) {
		ws := p.NewWorkspace(t)
		connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
		attempt := connector.Begin()
		page := p.Person(t, ws.Owner).Consent(t, attempt.Query)
		p.Database.Permit(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
		tokens := attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t)
		if tokens.Scope != harness.ReadProgrammes {
			t.Errorf("granted %q", tokens.Scope)
		}
	})
	t.Run("a confidential application's permission", func(t *testing.T) {
		ws := p.NewWorkspace(t)
		app := ws.Confidential(t, "", harness.ReadProgrammes, harness.WriteProgrammes)
		page := p.Person(t, ws.Owner).Consent(t, app.Request())
		p.Database.Permit(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
		wantsNoGrant(t, p, page.Press(t, "approve"), app.ClientID, http.StatusForbidden)
	})
	t.Run("the application", func(t *testing.T) {
		ws := p.NewWorkspace(t)
		connector := ws.Connector(t, harness.ReadProgrammes)
		page := p.Person(t, ws.Owner).Consent(t, connector.Begin().Query)
		p.As(ws.Token).Send(t, http.MethodDelete, ws.Clients()+"/"+connector.ClientID, "", "").
			Wants(t, http.StatusNoContent)
		wantsNoGrant(t, p, page.Press(t, "approve"), connector.ClientID, http.StatusBadRequest, http.StatusForbidden)
	})
}

func TestApproval_IgnoresPermissionsGainedSincePage(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	reader := ws.Member(t, harness.ReadProgrammes)
	attempt := connector.Begin()
	page := p.Person(t, reader).Consent(t, attempt.Query)
	p.Database.Permit(t, ws.Workspace, reader, harness.ReadProgrammes, harness.WriteProgrammes)
	tokens := attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t)
	if tokens.Scope != harness.ReadProgrammes {
		t.Errorf("granted %q, but the page showed only the read permission", tokens.Scope)
	}
}

// Eight concurrent approvals create one grant, and only one of their codes works.
func TestApproval_ConcurrentCreatesOneGrant(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	owner := p.Person(t, ws.Owner)
	attempt := connector.Begin()
	page := owner.Consent(t, attempt.Query)
	codes := make(chan string, 8)
	var clicks sync.WaitGroup
	for range cap(codes) {
		clicks.Go(func() {
			answer := page.Press(t, "approve")
			if answer.Status == http.StatusSeeOther {
				codes <- answer.Callback(t).Code()
			}
		})
	}
	clicks.Wait()
	close(codes)
	good := 0
	for code := range codes {
		if answer := attempt.Post(t, attempt.CodeForm(code)); answer.Status == http.StatusOK {
			good++
		} else {
			answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		}
	}
	if count := grantsOf(t, p, connector.ClientID); good != 1 || count != 1 {
		t.Errorf("%d codes worked and %d grants were created, want 1 and 1", good, count)
	}
}
