package e2e

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// The connection log of a workspace: each attempt with its last step, the reason for its failure, and its request id.

// settings.TestConnectionLog_ShowsStepsAndReasonOfEachAttempt has the steps before the approval.
func TestConnectionLog_ShowsProgressAndReason(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	page := p.AppURL + "/settings/connectors/log?tenant=" + ws.Workspace.ID + "&client=" + connector.ClientID
	log := func() harness.Page { t.Helper(); return owner.Arrive(t, page) }
	// says checks that the latest attempt contains the words and the request id of the answer.
	says := func(answer harness.Answer, words ...string) {
		t.Helper()
		latest := log().WantsPage(t, http.StatusOK).Find("li.attempt").First()
		text := strings.Join(strings.Fields(latest.Text()), " ")
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("the latest attempt does not contain %q: %s", word, text)
			}
		}
		id := latest.Find("input[aria-label^='Request id']").AttrOr("value", "")
		if want := answer.Header.Get("X-Request-Id"); id == "" || id != want {
			t.Errorf("request id %q, want %q: %s", id, want, text)
		}
	}
	says(connector.Refresh(t, "alm_rt_never_issued"), "Refused", "does not belong to a known approval",
		"The refresh token is unknown")
	attempt := connector.Begin()
	form := attempt.CodeForm(attempt.Code(t, owner))
	says(connector.Post(t, change(form, "code_verifier", strings.Repeat("w", 43))), "Refused",
		"code_verifier does not match", "Approved: done", "Sign-in finished: not reached", "Ada Okafor")
	tokens := connector.Connect(t, owner)
	connector.List(t, tokens).Wants(t, http.StatusOK)
	refreshed := connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	await.True(t, "the first call is recorded", func() bool { // uses are recorded in batches
		return strings.Contains(log().Text(), "First used: done")
	})
	log().WantsText(t, "Connected", "Sign-in finished: done", "Access renewed: done")
	p.Database.SetLLM(t, ws.Workspace, false)
	const off = "AI assistants are switched off"
	says(connector.Refresh(t, refreshed.RefreshToken), "Refused", off)
	p.Database.SetLLM(t, ws.Workspace, true)
	says(connector.Refresh(t, tokens.RefreshToken), "Ended", "old access key")
	p.Database.SetLLM(t, ws.Workspace, false)
	says(owner.Arrive(t, p.AuthorizeURL(connector.Begin().Query)).WantsPage(t, http.StatusForbidden).Answer,
		"Refused", off)
}

// The connector policy of a workspace: lowering it narrows existing connections at their next request; raising it
// widens none. The warning is in settings.TestConnectorPolicy_LoweringNeedsConfirmationAndNarrowsGrants, and
// introspection in token.TestIntrospect_DescribesNarrowedGrantAsItIsNow.

var (
	everyPlatform   = []string{"claude", "chatgpt", "other"}
	everyPermission = harness.ForConnectors()
)

func TestConnectorPolicy_LoweringNarrowsExistingConnections(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	grant := harness.GrantOf(t, tokens.AccessToken)
	write := func(token string) harness.Answer {
		t.Helper()
		return p.In(ws.Workspace, token).
			JSON(t, http.MethodPost, programmes, map[string]any{"name": "Warm rooms", "summary": "Open on Sundays"})
	}
	write(tokens.AccessToken).Wants(t, http.StatusCreated)
	p.LimitConnectors(t, ws, "7", everyPlatform, []string{harness.ReadProgrammes})
	narrowed := func(token string) {
		t.Helper()
		write(token).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
		p.In(ws.Workspace, token).Get(t, programmes).Wants(t, http.StatusOK)
	}
	narrowed(tokens.AccessToken)
	challenge := write(tokens.AccessToken).Header.Get("WWW-Authenticate")
	if strings.Contains(challenge, "insufficient_scope") {
		t.Errorf("the challenge suggests a new authorization: %s", challenge)
	}
	next := connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	wantsSeconds(t, "authorization_expires_in", next.AuthorizationEnd, 7*24*3600)
	p.LimitConnectors(t, ws, "30", everyPlatform, everyPermission)
	narrowed(next.AccessToken)
	last := connector.Refresh(t, next.RefreshToken).Tokens(t)
	wantsSeconds(t, "raised again: authorization_expires_in", last.AuthorizationEnd, 7*24*3600)
	narrowed(last.AccessToken)
	again := connector.Connect(t, p.Person(t, ws.Owner))
	wantsSeconds(t, "consented again: authorization_expires_in", again.AuthorizationEnd, 30*24*3600)
	if next.Scope != harness.ReadProgrammes || again.Scope != connector.Scope {
		t.Errorf("scope %q when refreshed, %q when consented again", next.Scope, again.Scope)
	}
	// An access token that has not expired stops working when its grant ends.
	p.Database.Exec(t, `update account.grants set created_at = created_at - interval '2 days' where id = $1`, grant)
	p.LimitConnectors(t, ws, "1", everyPlatform, everyPermission)
	p.In(ws.Workspace, last.AccessToken).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	if seen := p.DemoService().Introspect(t, last.AccessToken).Object(t); seen["active"] != false {
		t.Errorf("introspection shows %v", seen)
	}
	why := connector.Refresh(t, last.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	if !strings.Contains(why, "connector policy") {
		t.Errorf("error_description %q", why)
	}
}

// Every end of a grant and every rejected token request has a reason: for the application in error_description, for
// its user in Connected apps, and for the workspace in the audit log, on the page and in the export. Other reasons are
// in engine.TestRefusal_IsRecordedWithItsReason, settings.TestApps_ShowsReplayAndExpiryAsReasons and
// settings.TestApps_PausedConnectionNamesReason.

// A cause is what happens to a connection before its refresh token is presented.
type cause struct {
	happens func(c *connection)
	text    string // within error_description and the audit log
	shown   string // within Connected apps
	reason  string // in the export
}

// A connection is a grant with its application and its user.
type connection struct {
	harness.Connector
	*harness.Product
	t        *testing.T
	ws       harness.TestWorkspace
	person   *harness.Person
	presents string // the refresh token that is presented at the end
}

func replay(c *connection) {
	c.Refresh(c.t, c.presents).Tokens(c.t)
	c.Refresh(c.t, c.presents).WantsFlat(c.t, http.StatusBadRequest, "invalid_grant")
}

func exchangeTwice(c *connection) {
	attempt := c.Begin()
	form := attempt.CodeForm(attempt.Code(c.t, c.person))
	c.presents = attempt.Post(c.t, form).Tokens(c.t).RefreshToken
	attempt.Post(c.t, form).WantsFlat(c.t, http.StatusBadRequest, "invalid_grant")
}

const maybeLost = "This was probably a network fault and not theft: "

func causes() map[string]cause {
	return map[string]cause{
		"a superseded token": {
			replay, "a superseded refresh token was presented",
			"because an old access key was used again. " + maybeLost, "refresh_token_replayed",
		},
		"a code twice": {
			exchangeTwice, "its authorization code was presented again",
			"because a one-time sign-in code was used again. " + maybeLost, "code_reused",
		},
		"the LLM integration off": {
			func(c *connection) { c.Database.SetLLM(c.t, c.ws.Workspace, false) },
			"has switched its LLM integration off", "assistants are switched off", "llm_integration_off",
		},
	}
}

func TestReasons_EveryEndHasReason(t *testing.T) {
	p := inParallel(t)
	for name, c := range causes() {
		t.Run(name, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			ada := p.Person(t, ws.Member(t, harness.ReadProgrammes))
			connector := ws.Connector(t, harness.ReadProgrammes)
			held := &connection{connector, p, t, ws, ada, connector.Connect(t, ada).RefreshToken}
			c.happens(held)

			description := held.Refresh(t, held.presents).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			if !strings.Contains(description, c.text) {
				t.Errorf("error_description %q does not contain %q", description, c.text)
			}
			if page := ada.Arrive(t, p.AppURL+"/settings/apps"); !strings.Contains(page.Text(), c.shown) {
				t.Errorf("Connected apps does not contain %q: %s", c.shown, page.Text())
			}
			owner := p.Person(t, ws.Owner)
			log := owner.Arrive(t, p.AppURL+"/settings/audit?tenant="+ws.Workspace.ID)
			if !strings.Contains(log.Text(), c.text) {
				t.Errorf("the audit log does not contain %q: %s", c.text, log.Text())
			}
			export := string(owner.Open(t, p.AppURL+"/settings/audit.jsonl?tenant="+ws.Workspace.ID).Body)
			if !strings.Contains(export, `"reason":"`+c.reason+`"`) || strings.Contains(export, held.presents) {
				t.Errorf("the export does not contain the reason %s, or contains a token", c.reason)
			}
		})
	}
}

var permissionID = regexp.MustCompile(`[a-z]+:[a-z]+:[a-z]+`)

// operationsUse returns the permissions that the operations of the REST API need, from their descriptions.
func operationsUse(t *testing.T) []string {
	t.Helper()
	checker, err := harness.Checker()
	must(t, err)
	var out []string
	for _, o := range checker.Document.Operations() {
		if !strings.HasPrefix(o.Path, "/v1/") {
			continue
		}
		for _, id := range permissionID.FindAllString(o.Text("description"), -1) {
			if !strings.HasPrefix(id, "account:") { // never granted to a connector
				out = append(out, id)
			}
		}
	}
	return slices.Compact(sorted(out))
}

// toolsUse returns the permissions that the listed tools need, from the errors for a credential without them.
func toolsUse(t *testing.T, p *harness.Product, ws harness.TestWorkspace) []string {
	t.Helper()
	nothing := mcp(p, p.Database.Token(t, ws.Workspace, ws.Owner, harness.APIAccess))
	var out []string
	tools, _ := rpc(t, nothing, "tools/list", nil).Wants(t, http.StatusOK).Object(t)["result"].(map[string]any)
	list, _ := tools["tools"].([]any)
	if len(list) == 0 {
		t.Fatal("there are no tools")
	}
	for _, entry := range list {
		tool, _ := entry.(map[string]any)
		answer := rpc(t, nothing, "tools/call", map[string]any{"name": tool["name"], "arguments": map[string]any{}})
		if answer.Status == http.StatusOK {
			continue
		}
		needed := permissionID.FindString(answer.WantsNested(t, http.StatusForbidden, "FORBIDDEN"))
		if needed == "" {
			t.Fatalf("the error of %v does not name the permission:\n%s", tool["name"], answer)
		}
		out = append(out, needed)
	}
	return slices.Compact(sorted(out))
}

// Contract, section 5: the challenge, the resource's metadata, the consent page and the token name exactly the
// permissions that the operations of the resource need, even if an older client is registered for more.
func TestConsent_NamesUsablePermissions(t *testing.T) {
	p, ws := inWorkspace(t)
	person := p.Person(t, ws.Owner)
	for path, want := range map[string][]string{"/v1": operationsUse(t), "/mcp": toolsUse(t, p, ws)} {
		t.Run(path, func(t *testing.T) {
			if len(want) == 0 {
				t.Fatal("no operation needs a permission")
			}
			same := func(where string, got []string) {
				t.Helper()
				if !slices.Equal(sorted(got), want) {
					t.Errorf("%s names %v, want %v", where, got, want)
				}
			}
			probe := map[string]string{"/v1": programmes, "/mcp": mcpPath}[path]
			for name, api := range map[string]harness.API{
				"the first challenge":          p.API(),
				"the challenge of a bad token": p.As("nonsense"),
			} {
				challenge := api.Get(t, probe).Wants(t, http.StatusUnauthorized).Header.Get("WWW-Authenticate")
				_, scope, _ := strings.Cut(challenge, `scope="`)
				scope, _, _ = strings.Cut(scope, `"`)
				same(name, strings.Fields(scope))
			}
			metadata := p.API().Get(t, "/.well-known/oauth-protected-resource"+path).Wants(t, http.StatusOK).Object(t)
			same("the metadata", texts(metadata["scopes_supported"]))

			connector := ws.ConnectorFor(t, p.BaseURL+path, want...)
			p.Database.Exec(t, `update account.oauth_clients set required_permissions = $2 where id = $1`,
				connector.ClientID, harness.ForConnectors())
			for _, scope := range []string{"", "offline_access", strings.Join(harness.ForConnectors(), " ")} {
				attempt := connector.Begin()
				attempt.Query.Set("scope", scope)
				page := person.Consent(t, attempt.Query)
				same("the consent page", onThePage(page))
				tokens := attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t)
				same("the answer of the token endpoint", strings.Fields(tokens.Scope))
				claimed, _ := harness.Decode(t, tokens.AccessToken).Claims["scope"].(string)
				same("the token", strings.Fields(claimed))
				refreshed := connector.Refresh(t, tokens.RefreshToken).Tokens(t)
				same("a refreshed token", strings.Fields(refreshed.Scope))
			}
			for _, surplus := range perm.ForConnectors() {
				if slices.Contains(want, string(surplus)) {
					continue
				}
				body := harness.ConnectorBody(p.BaseURL+path, append(slices.Clone(want), string(surplus))...)
				ws.Register(t, body).WantsFlat(t, http.StatusBadRequest, "invalid_client_metadata")
			}
		})
	}
}

// onThePage returns the permissions whose titles are on the consent page.
func onThePage(page harness.Page) []string {
	ids := map[string]string{}
	for _, entry := range perm.All() {
		ids[entry.Title] = string(entry.ID)
	}
	var out []string
	page.Find(".permission-title, .left-out li").Each(func(_ int, title *goquery.Selection) {
		out = append(out, ids[strings.TrimSpace(title.Text())])
	})
	return out
}
