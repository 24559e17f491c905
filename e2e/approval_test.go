package e2e

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 4: the approval "is a POST bound to the browser's session and to what was on the page".

// wantsNoGrant checks that a rejected approval shows a page and leaves no grant.
func wantsNoGrant(t *testing.T, p *harness.Product, page harness.Page, client string, statuses ...int) {
	t.Helper()
	matches := false
	for _, status := range statuses {
		matches = matches || page.Status == status
	}
	if !matches || page.Header.Get("Location") != "" {
		t.Errorf("want a page with one of %v:\n%s", statuses, page)
	}
	if count := grantsOf(t, p, client); count != 0 {
		t.Errorf("%d grants were created", count)
	}
}

func TestApproval_RejectsOtherOrigin(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	for name, header := range map[string]http.Header{
		"Origin":                       {"Origin": {"https://evil.example"}},
		"Origin null":                  {"Origin": {"null"}},
		"Origin, other port":           {"Origin": {p.BaseURL}},
		"Sec-Fetch-Site":               {"Sec-Fetch-Site": {"cross-site"}},
		"Sec-Fetch-Site, same site":    {"Sec-Fetch-Site": {"same-site"}},
		"own Origin, cross-site fetch": {"Sec-Fetch-Site": {"cross-site"}, "Origin": {p.AppURL}},
	} {
		t.Run(name, func(t *testing.T) {
			connector := ws.Connector(t, harness.ReadProgrammes)
			owner.Header = http.Header{}
			page := owner.Consent(t, connector.Begin().Query)
			for _, button := range []string{"approve", "deny"} {
				owner.Header = header
				wantsNoGrant(t, p, page.Press(t, button), connector.ClientID, http.StatusForbidden)
			}
			owner.Header = http.Header{}
			page.Approve(t) // the attempt does not affect the real browser
		})
	}
}

// The headers that browsers send, and callers without these headers ("judged by session and ticket").
func TestApproval_AcceptsOwnPage(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.Person(t, p.Demo.Users.Owner).SignedIn(t)
	for _, header := range []http.Header{
		{},
		{"Origin": {p.AppURL}},
		{"Sec-Fetch-Site": {"same-origin"}, "Origin": {p.AppURL}},
		{"Sec-Fetch-Site": {"same-origin"}},
	} {
		owner.Header = header
		owner.Consent(t, p.DemoConnector().Begin().Query).Approve(t)
	}
}

func TestApproval_RejectsOtherSession(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	victim, colleague := p.Person(t, ws.Owner), p.Person(t, ws.Member(t, harness.Everything()...)).SignedIn(t)
	sameUser := p.Person(t, ws.Owner).SignedIn(t) // at another browser
	signedOut := p.Person(t, ws.Owner)
	for name, other := range map[string]*harness.Person{
		"another user":                colleague,
		"another session of the user": sameUser,
		"not signed in":               signedOut,
	} {
		t.Run(name, func(t *testing.T) {
			connector := ws.Connector(t, harness.ReadProgrammes)
			page := victim.Consent(t, connector.Begin().Query)
			wantsNoGrant(t, p, other.Submit(t, page.DecisionForm(t, "approve")), connector.ClientID,
				http.StatusForbidden)
			page.Approve(t)
		})
	}
}

func TestApproval_TrustsOnlyTicket(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	t.Run("ticket forged, cut, missing, twice", func(t *testing.T) {
		connector := ws.Connector(t, harness.ReadProgrammes)
		form := owner.Consent(t, connector.Begin().Query).DecisionForm(t, "approve")
		ticket := form.Fields.Get("ticket")
		for _, tickets := range [][]string{
			{alterLast(ticket)},
			{ticket[:len(ticket)-4]},
			{""},
			nil,
			{ticket, ticket},
			{"nonsense"},
			{ticket + "="},
		} {
			form.Fields["ticket"] = tickets
			wantsNoGrant(t, p, owner.Submit(t, form), connector.ClientID, http.StatusForbidden, http.StatusBadRequest)
		}
	})
	t.Run("fields that the page does not have", func(t *testing.T) {
		connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
		attempt := connector.Begin()
		attempt.Query = change(attempt.Query, "scope", harness.ReadProgrammes)
		form := owner.Consent(t, attempt.Query).DecisionForm(t, "approve")
		for name, value := range map[string]string{
			"redirect_uri": "https://evil.example/",
			"scope":        harness.WriteProgrammes,
			"state":        "x",
			"client_id":    p.DemoConnector().ClientID,
			"user":         p.Demo.Users.Owner.ID,
			"permissions":  harness.WriteProgrammes,
		} {
			form.Fields.Set(name, value)
		}
		callback := owner.Submit(t, form).Callback(t)
		if callback.URI != connector.RedirectURI || callback.Values.Get("state") != attempt.Query.Get("state") {
			t.Error("a form field changed the callback or the state")
		}
		tokens := attempt.Post(t, attempt.CodeForm(callback.Code())).Tokens(t)
		if tokens.Scope != harness.ReadProgrammes {
			t.Errorf("a form field changed the scope to %q", tokens.Scope)
		}
	})
	t.Run("no decision", func(t *testing.T) {
		connector := ws.Connector(t, harness.ReadProgrammes)
		form := owner.Consent(t, connector.Begin().Query).DecisionForm(t, "approve")
		for _, decisions := range [][]string{
			nil,
			{""},
			{"Approve"},
			{"yes"},
			{"approve", "deny"},
			{"deny", "approve"},
		} {
			form.Fields["decision"] = decisions
			wantsNoGrant(t, p, owner.Submit(t, form), connector.ClientID, http.StatusBadRequest)
		}
	})
}

func TestApproval_GetDoesNotApprove(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	connector := ws.Connector(t, harness.ReadProgrammes)
	attempt := connector.Begin()
	form := owner.Consent(t, attempt.Query).DecisionForm(t, "approve")
	query := url.Values{}
	for _, values := range []url.Values{attempt.Query, form.Fields} {
		for name := range values {
			query.Set(name, values.Get(name))
		}
	}
	for _, address := range []string{form.Action + "?" + form.Fields.Encode(), form.Action + "?" + query.Encode()} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			if page := owner.Request(t, method, address, "", ""); page.Header.Get("Location") != "" {
				t.Errorf("unexpected redirect:\n%s", page)
			}
		}
		owner.Request(t, http.MethodPost, address, "application/x-www-form-urlencoded", "")
	}
	if count := grantsOf(t, p, connector.ClientID); count != 0 {
		t.Errorf("%d grants were created", count)
	}
}

// A double click creates one grant. The second approval replaces the unused code.
func TestApproval_SecondReplacesUnusedCode(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	attempt := connector.Begin()
	page := p.Person(t, ws.Owner).Consent(t, attempt.Query)
	first, second := page.Approve(t), page.Approve(t)
	if first == second {
		t.Fatal("both approvals gave the same code")
	}
	if count := grantsOf(t, p, connector.ClientID); count != 1 {
		t.Errorf("%d grants for one page", count)
	}
	attempt.Post(t, attempt.CodeForm(first)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	tokens := attempt.Post(t, attempt.CodeForm(second)).Tokens(t)

	// Approved again after the code was redeemed: the response is an error page, and nothing changes.
	for _, button := range []string{"approve", "deny"} {
		late := page.Press(t, button)
		if button == "approve" && (late.Header.Get("Location") != "" || late.Status < 400) {
			t.Errorf("approved a third time, after the code was redeemed:\n%s", late)
		}
	}
	p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	if count := grantsOf(t, p, connector.ClientID); count != 1 {
		t.Errorf("%d grants for one page", count)
	}
}
