package authorize_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// Contract, section 4: the same request again in the same session, while its approval is unused, is the same approval.

// clientOf returns the terms of a client with a metadata document, for redeem.
func clientOf(t *testing.T, address, redirectURI string) client.Client {
	t.Helper()
	id, err := accesstoken.ClientID(address)
	must(t, err)
	return client.Client{ID: id, Redirects: []string{redirectURI}}
}

// answered requires that the page says that the request was answered.
func answered(page *browsertest.Page, name string) {
	page.As(name).Wants(http.StatusConflict, "You have already answered this request").LeadsTo("")
}

func TestSameRequest_HasOneApproval(t *testing.T) {
	site := shared(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser, path := site.SignedIn(site.Member(perm.ProgrammesRead)), request(confidential(app))
	otherTab, page := browser.Get(path), browser.Get(path)
	const before = "You have already approved this request"
	page.Lacks(before)
	var codes []string
	for _, page := range []*browsertest.Page{page, page, browser.Get(path)} { // the back button shows the page anew
		codes = append(codes, callback(t, approve(page)).Get("code"))
	}
	browser.Get(path).Wants(http.StatusOK, before)
	site.Rows(1, "grants", "")
	site.Rows(1, "audit_events", "action = $1", audit.GrantConsented)
	for i, code := range codes {
		_, err := redeem(site, app, code, "")
		if _, refused := errors.AsType[*grant.Refusal](err); refused != (i < 2) || (err == nil) != (i == 2) {
			t.Errorf("code %d: %v", i+1, err)
		}
	}
	answered(approve(page), "approved once more")
	answered(deny(page), "denied on the same page")
	answered(browser.Get(path), "the request again")
	answered(approve(otherTab), "approved in another tab")
	answered(deny(otherTab), "denied in another tab")
	site.Rows(1, "grants", `state = 'active'`)
	browser.Get(path).Says("Donor sync is connected to Riverside Food Bank")
	site.Fixture.Exec(`update account.grants set ends_at = now() where client_id = $1`, app.ID)
	browser.Get(path).Says("but Donor sync no longer has access to Riverside Food Bank")
	page = browser.Get(request(confidential(app), "state", "another"))
	code := callback(t, approve(page)).Get("code")
	site.Equal("the same page again", callback(t, deny(page)).Get("error"), "access_denied")
	if _, err := redeem(site, app, code, ""); !errors.As(err, new(*grant.Refusal)) {
		t.Errorf("the code of a request that was denied later: %v", err)
	}
}

// Approve is pressed without touching the choice, or one of the presets or Deny is chosen.
func TestSameRequest_LastDecisionCounts(t *testing.T) {
	t.Parallel()
	const all, read = "programmes:read:programmes programmes:write:programmes", "programmes:read:programmes"
	for decisions, want := range map[string]string{
		"read":                             read,
		"read approve":                     read,
		"read all":                         all,
		"all read":                         read,
		"read all read approve":            read,
		"read deny":                        "",
		"all deny read":                    read,
		"deny approve":                     all,
		"all deny all deny all deny":       "",
		"all deny all deny all deny read":  read,
		"read deny deny approve read deny": "",
	} {
		t.Run(decisions, func(t *testing.T) {
			site := shared(t)
			browser := site.SignedIn(site.Member(perm.ProgrammesRead, perm.ProgrammesWrite))
			assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
			var codes []string
			for decision := range strings.SplitSeq(decisions, " ") {
				fields := browsertest.Fields{"decision": "approve"}
				switch decision {
				case "deny":
					fields["decision"] = "deny"
				case "all", "read":
					fields["access"] = decision
				}
				page := browser.Get(request(connector(assistant))).Send("/oauth/authorize", fields)
				if code := callback(t, page).Get("code"); (code == "") != (decision == "deny") {
					t.Fatalf("%s: %d to %q", decision, page.Status, page.Location())
				} else if code != "" {
					codes = append(codes, code)
				}
			}
			granted := ""
			for _, code := range codes {
				if issued, err := redeem(site, assistant, code, challenge); err == nil {
					granted += issued.Grant.Permissions.Scope()
				}
			}
			if granted != want {
				t.Errorf("granted %q, want %q", granted, want)
			}
			site.Rows(min(len(want), 1), "grants", "state = 'active'")
		})
	}
}

func TestSameRequest_DiffersByClientRedirectStateChallengeAndSession(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	assistant, other := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead),
		site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	const elsewhere = "https://claude.ai/elsewhere"
	site.Fixture.Exec(`update account.oauth_clients set redirect_uris = redirect_uris || $1::text where tenant_id = $2`,
		elsewhere, site.Fixture.WorkspaceID)
	browser, fields := site.SignedIn(ada), connector(assistant)
	for name, path := range map[string]string{
		"as it is":  request(fields),
		"scope":     request(fields, "scope", "offline_access"),
		"client":    request(connector(other)),
		"redirect":  request(fields, "redirect_uri", elsewhere),
		"state":     request(fields, "state", "another"),
		"challenge": request(fields, "code_challenge", strings.Repeat("c", 43)),
		"session":   request(fields),
	} {
		by := browser
		if name == "session" {
			by = site.SignedIn(ada)
		}
		if code := callback(t, approve(by.Get(path))).Get("code"); code == "" {
			t.Errorf("%s: no code", name)
		}
	}
	site.Rows(6, "grants", "") // the scope does not make another request
}

// A person who goes back and chooses another workspace, or the other resource, changes the approval.
func TestSameRequest_OneWorkspaceAndResource(t *testing.T) {
	site := shared(t)
	ada, second := memberOfTwo(site)
	first, browser := site.Fixture.WorkspaceID, site.SignedIn(ada)
	address := site.Clients.Client("/oauth/client", nil, web)
	const mcp = browsertest.Issuer + "/mcp"
	at := func(resource string) *browsertest.Page {
		return browser.Get(request(requestOf(address, web), "resource", resource))
	}
	var codes []string
	for _, workspace := range []uuid.UUID{first, second, first} {
		codes = append(codes, callback(t, approve(choose(at(browsertest.Resource), workspace))).Get("code"))
	}
	codes = append(codes, callback(t, approve(choose(at(mcp), first))).Get("code"))
	app := clientOf(t, address, web)
	otherTab := choose(at(mcp), second)
	for _, code := range codes[:3] { // redeem sends the resource of the first three
		if _, err := redeem(site, app, code, challenge); err == nil {
			t.Error("a replaced code works")
		}
	}
	if g := redeemedBy(t, site, address, codes[3], web, mcp); g.WorkspaceID != first || g.Resource != mcp {
		t.Errorf("granted %s in %s", g.Resource, g.WorkspaceID)
	}
	answered(at(mcp).Says("Go to "), "again")
	answered(approve(otherTab), "another workspace")
	site.CountIs(1, `select count(*) from account.grants where state in ('active', 'pending') and user_id = $1`, ada.ID)
}

func TestSameRequest_DenialEndsCodeOfAnotherWorkspace(t *testing.T) {
	site := shared(t)
	ada, second := memberOfTwo(site)
	address := site.Clients.Client("/oauth/client", nil, web)
	browser, path := site.SignedIn(ada), request(requestOf(address, web))
	for name, refuse := range map[string]func() *browsertest.Page{
		"on the page of the workspaces": func() *browsertest.Page {
			return browser.Get(path).Send(choosing, browsertest.Fields{"decision": "deny"})
		},
		"on the other's consent page": func() *browsertest.Page { return deny(choose(browser.Get(path), second)) },
	} {
		code := callback(t, approve(choose(browser.Get(path), site.Fixture.WorkspaceID))).Get("code")
		if callback(t, refuse()).Get("error") != "access_denied" {
			t.Errorf("%s: not denied", name)
		}
		if _, err := redeem(site, clientOf(t, address, web), code, challenge); err == nil {
			t.Errorf("%s: the code works", name)
		}
	}
}

// Tabs decide at once, and the application redeems what it gets. One grant comes of it, whatever comes first.
func TestSameRequest_RacingTabsAndRedemptionsMakeOneGrant(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	workspaces := []uuid.UUID{site.Fixture.WorkspaceID}
	for _, name := range []string{"Harbour Advice", "Hill Kitchen"} {
		workspaces = append(workspaces, site.Fixture.Workspace(name))
		site.Fixture.Join(workspaces[len(workspaces)-1], ada.ID, perm.ProgrammesRead)
	}
	address := site.Clients.Client("/oauth/client", nil, web)
	app := clientOf(t, address, web)
	browser := site.SignedIn(ada)
	for round := range 8 {
		path := request(requestOf(address, web), "state", uuid.NewString())
		var tabs []*browsertest.Page
		for i := range 6 {
			tabs = append(tabs, choose(browser.Get(path), workspaces[i%len(workspaces)]))
		}
		var mu sync.Mutex
		var codes []string
		redeemed := 0
		try := func(code string) {
			if _, err := redeem(site, app, code, challenge); err == nil {
				mu.Lock()
				redeemed++
				mu.Unlock()
			}
		}
		var clicks sync.WaitGroup
		for i, tab := range tabs {
			clicks.Go(func() {
				if i == 5 && round%2 == 1 {
					deny(tab)
					return
				}
				if answer := approve(tab); answer.Status == http.StatusSeeOther {
					code := callback(t, answer).Get("code")
					mu.Lock()
					codes = append(codes, code)
					mu.Unlock()
					if i%2 == 0 {
						try(code)
					}
				}
			})
		}
		clicks.Wait()
		if len(codes) == 0 {
			t.Fatal("no approval succeeded")
		}
		used := redeemed
		for _, code := range codes {
			if used == 0 {
				try(code)
			}
		}
		const inState = `select count(*) from account.grants where user_id = $1 and state = $2`
		active, pending := site.Count(inState, ada.ID, "active"), site.Count(inState, ada.ID, "pending")
		// A redemption that meets an approval elsewhere may give tokens, which do not work
		// (grant.TestG12_DenialDuring…).
		if lost := round%2 == 0 && active+pending == 0; lost || active+pending > 1 { // in even rounds, no tab denies
			t.Errorf("round %d: %d codes redeemed, %d grants active, %d pending", round, redeemed, active, pending)
		}
		site.Fixture.Exec(`delete from account.grants where user_id = $1`, ada.ID)
	}
}
