package authorize_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

func approve(page *browsertest.Page) *browsertest.Page {
	return page.Send("/oauth/authorize", browsertest.Fields{"decision": "approve"})
}

// callback returns the query that the response sends to the callback.
func callback(t *testing.T, page *browsertest.Page) url.Values {
	t.Helper()
	page.Wants(http.StatusSeeOther)
	to, err := url.Parse(page.Location())
	must(t, err)
	return to.Query()
}

// redeem exchanges a code as the token endpoint does.
func redeem(site *browsertest.Server, c client.Client, code, codeChallenge string) (grant.Issued, error) {
	return site.Redeem(credential.Secret(code), grant.CodeTerms{
		ClientID:    c.ID,
		RedirectURI: c.Redirects[0],
		Resource:    browsertest.Resource,
		Challenge:   codeChallenge,
	})
}

// granted redeems the code that an answer sends to a connector.
func granted(t *testing.T, site *browsertest.Server, c client.Client, answer *browsertest.Page) grant.Grant {
	t.Helper()
	issued, err := redeem(site, c, callback(t, answer).Get("code"), challenge)
	site.Must(err)
	return issued.Grant
}

// opened returns a confidential client and its consent page, opened by a member who holds what the client requires.
func opened(site *browsertest.Server) (client.Client, *browsertest.Page) {
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	return app, site.SignedIn(site.Member(perm.ProgrammesRead)).Get(request(confidential(app)))
}

func TestApproval_SendsCodeForPermissionsOnThePage(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead, perm.EngageReadForms)
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	answer := approve(site.SignedIn(ada).Get(request(connector(assistant), "iss", "https://a.example")))
	query := callback(t, answer)
	if !strings.HasPrefix(answer.Location(), fixture.Callback+"?code=") || query.Get("state") != state ||
		!slices.Equal(query["iss"], []string{browsertest.Issuer}) || len(query) != 3 || answer.Body != "" {
		t.Errorf("sent to %s with %d parameters and a body of %q", fixture.Callback, len(query), answer.Body)
	}
	if strings.Contains(answer.Location(), "+") {
		t.Error("a plus sign in the address: not every client reads it as a space")
	}
	g := granted(t, site, assistant, answer)
	if g.Permissions.Scope() != "programmes:read:programmes" || g.UserID != ada.ID ||
		g.WorkspaceID != site.Fixture.WorkspaceID || g.Resource != browsertest.Resource {
		t.Errorf("grant: %+v", g)
	}
	if life := time.Until(g.Ends); life < 30*24*time.Hour-time.Minute || life > 30*24*time.Hour {
		t.Errorf("the grant lasts %v", life)
	}
}

func TestApproval_ConnectorGetsRemainingPermissionsOnThePage(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite,
		perm.EngageReadForms)
	page := site.SignedIn(ada).Get(request(connector(assistant)))
	site.SetPermissions(ada.ID, perm.ProgrammesRead, perm.EngageReadForms)
	site.Equal("granted", granted(t, site, assistant, approve(page)).Permissions.Scope(), "programmes:read:programmes")
}

func TestApproval_ConnectorCanBeGivenReadOnlyAccess(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead, perm.ProgrammesWrite, perm.EngageReadForms)
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite,
		perm.EngageReadForms)
	browser := site.SignedIn(ada)
	page := browser.Get(request(connector(assistant)))
	page.Keeps("/oauth/authorize", "access", "all")
	answer := page.Send("/oauth/authorize", browsertest.Fields{"decision": "approve", "access": "read"})
	site.Equal("granted", granted(t, site, assistant, answer).Permissions.Scope(),
		"programmes:read:programmes engage:read:forms")
	reading := browser.Get(request(connector(assistant), "scope", "programmes:read:programmes", "state", "another"))
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	whole := browser.Get(request(confidential(app)))
	// No choice is offered: the grant is read-only, or the client needs every required permission.
	for name, p := range map[string]*browsertest.Page{"reading": reading, "confidential": whole} {
		p.As(name).Keeps("/oauth/authorize", "access", "")
		p.Send("/oauth/authorize", browsertest.Fields{"decision": "approve", "access": "read"}).As(name).
			Wants(http.StatusBadRequest)
	}
}

func TestApproval_IgnoresFieldsThatPageDoesNotHave(t *testing.T) {
	site := shared(t)
	ada, eve := site.Member(perm.ProgrammesRead, perm.ProgrammesWrite), site.Member(perm.ProgrammesRead)
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	other := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	page := site.SignedIn(ada).Get(request(connector(assistant), "scope", "programmes:read:programmes"))
	answer := page.Send("/oauth/authorize", browsertest.Fields{
		"decision":     "approve",
		"redirect_uri": "https://evil.example/",
		"scope":        "programmes:write:programmes",
		"state":        "x",
		"client_id":    other.ID.String(),
		"user":         eve.ID.String(),
		"permissions":  "programmes:write:programmes",
	})
	if to := callback(t, answer); !strings.HasPrefix(answer.Location(), fixture.Callback+"?code=") ||
		to.Get("state") != state {
		t.Errorf("a field changed the callback or the state: %q", to.Get("state"))
	}
	g := granted(t, site, assistant, answer)
	if g.Permissions.Scope() != "programmes:read:programmes" || g.UserID != ada.ID || g.ClientID != assistant.ID {
		t.Errorf("granted: %+v", g)
	}
}

// The clock of the approving process does not move the grant's end (package grant, G4).
func TestApproval_ProcessClockDoesNotMoveGrantEnd(t *testing.T) {
	site := own(t)
	for _, off := range []time.Duration{time.Hour, -2 * time.Hour} { // an hour ahead, then an hour behind
		ada := site.Member(perm.ProgrammesRead)
		assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
		person := site.SignedIn(ada)
		site.Wait(off)
		callback(t, approve(person.Get(request(connector(assistant)))))
		life := int(assistant.Kind.Traits().GrantLife.Seconds())
		site.Rows(1, "grants", `user_id = $2 and ends_at between now() + make_interval(secs => $1 - 60)
			and now() + make_interval(secs => $1)`, life, ada.ID)
	}
}

// After a revocation for reuse, the consent page preselects the user's former choice.
func TestConsentPage_ProposesFormerChoice(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	browser := site.SignedIn(ada)
	proposed := func(what, want string) {
		t.Helper()
		browser.Get(request(connector(app))).As(what).Keeps("/oauth/authorize", "access", want)
	}
	proposed("at first", "all")
	narrow := app
	narrow.Required = perm.NewSet(perm.ProgrammesRead)
	g := site.Redeemed(narrow, ada.ID)
	proposed("while it is connected", "all")
	site.Must(site.Store.Revoke(t.Context(), g.Key(), grant.Replayed, "client", &grant.Reuse{}))
	proposed("after a replay", "read")
	g = site.Redeemed(app, ada.ID)
	site.Must(site.Store.Revoke(t.Context(), g.Key(), grant.Replayed, "client", &grant.Reuse{}))
	proposed("after a replay of more", "all")
	g = site.Redeemed(narrow, ada.ID)
	site.Must(site.Store.Revoke(t.Context(), g.Key(), grant.ByUser, "user", nil))
	proposed("after it was disconnected", "all")
}

func deny(page *browsertest.Page) *browsertest.Page {
	return page.Send("/oauth/authorize", browsertest.Fields{"decision": "deny"})
}

func TestDenial_SendsAccessDenied(t *testing.T) {
	site := shared(t)
	_, page := opened(site)
	query := callback(t, deny(page))
	if query.Get("error") != "access_denied" || query.Get("state") != state || query.Get("iss") != browsertest.Issuer ||
		query.Has("code") {
		t.Errorf("%v", query)
	}
	site.Rows(0, "grants", "")
}

// The code is redeemed while a denial of the same page waits for the grant: the denial gets a 409 and does not end the
// grant.
func TestDenial_RacingRedemptionConflicts(t *testing.T) {
	site := shared(t)
	_, page := opened(site)
	approve(page)
	redemption, err := site.Fixture.Owner.Begin(t.Context())
	site.Must(err)
	defer func() { _ = redemption.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = redemption.Exec(t.Context(), `update account.grants set state = 'active', generation = 1
		where tenant_id = $1`, site.Fixture.WorkspaceID)
	site.Must(err)
	answer := make(chan *browsertest.Page)
	go func() { answer <- deny(page) }()
	const waiting = `select count(*) from pg_stat_activity where $1 = any (pg_blocking_pids(pid))`
	await.True(t, "the denial waits", func() bool {
		return site.Count(waiting, redemption.Conn().PgConn().PID()) > 0
	})
	site.Must(redemption.Commit(t.Context()))
	(<-answer).Wants(http.StatusConflict).LeadsTo("")
	site.Rows(1, "grants", `state = 'active'`)
}
