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
		change func(t *testing.T, office harness.Office)
	}{
		"membership":      {func(t *testing.T, o harness.Office) { p.World.Leave(t, o.Workspace, o.Head) }},
		"LLM integration": {func(t *testing.T, o harness.Office) { p.World.SetLLM(t, o.Workspace, false) }},
		"all permissions": {func(t *testing.T, o harness.Office) { p.World.Permit(t, o.Workspace, o.Head) }},
	} {
		t.Run(name, func(t *testing.T) {
			office := p.Office(t)
			connector := office.Connector(t, harness.ReadProgrammes)
			page := p.Person(t, office.Head).Consent(t, connector.Begin().Query)
			c.change(t, office)
			wantsNoGrant(t, p, page.Press(t, "approve"), connector.ClientID, http.StatusForbidden)
		})
	}
	t.Run("one permission", func(t *testing.T) {
		office := p.Office(t)
		connector := office.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
		attempt := connector.Begin()
		page := p.Person(t, office.Head).Consent(t, attempt.Query)
		p.World.Permit(t, office.Workspace, office.Head, harness.ReadProgrammes)
		tokens := attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t)
		if tokens.Scope != harness.ReadProgrammes {
			t.Errorf("granted %q", tokens.Scope)
		}
	})
	t.Run("a confidential application's permission", func(t *testing.T) {
		office := p.Office(t)
		app := office.Confidential(t, "", harness.ReadProgrammes, harness.WriteProgrammes)
		page := p.Person(t, office.Head).Consent(t, app.Request())
		p.World.Permit(t, office.Workspace, office.Head, harness.ReadProgrammes)
		wantsNoGrant(t, p, page.Press(t, "approve"), app.ClientID, http.StatusForbidden)
	})
	t.Run("the application", func(t *testing.T) {
		office := p.Office(t)
		connector := office.Connector(t, harness.ReadProgrammes)
		page := p.Person(t, office.Head).Consent(t, connector.Begin().Query)
		p.As(office.Token).
			Send(t, http.MethodDelete, office.Clients()+"/"+connector.ClientID, "", "").
			Wants(t, http.StatusNoContent)
		wantsNoGrant(
			t,
			p,
			page.Press(t, "approve"),
			connector.ClientID,
			http.StatusBadRequest,
			http.StatusForbidden,
		)
	})
}

func TestApproval_IgnoresPermissionsGainedSincePage(t *testing.T) {
	t.Parallel()
	p := enter(t)
	office := p.Office(t)
	connector := office.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	reader := office.Member(t, harness.ReadProgrammes)
	attempt := connector.Begin()
	page := p.Person(t, reader).Consent(t, attempt.Query)
	p.World.Permit(t, office.Workspace, reader, harness.ReadProgrammes, harness.WriteProgrammes)
	tokens := attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t)
	if tokens.Scope != harness.ReadProgrammes {
		t.Errorf("granted %q, but the page showed only the read permission", tokens.Scope)
	}
}

// Eight concurrent approvals create one grant, and only one of their codes works.
func TestApproval_ConcurrentCreatesOneGrant(t *testing.T) {
	t.Parallel()
	p := enter(t)
	office := p.Office(t)
	connector := office.Connector(t, harness.ReadProgrammes)
	owner := p.Person(t, office.Head)
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
