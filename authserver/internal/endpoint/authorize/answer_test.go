package authorize_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/perm"
)

func approve(page *browsertest.Page) *browsertest.Page {
	return page.Send("/oauth/authorize", browsertest.Fields{"decision": "approve"})
}

func deny(page *browsertest.Page) *browsertest.Page {
	return page.Send("/oauth/authorize", browsertest.Fields{"decision": "deny"})
}

// callback returns the query that the response sends to the callback.
func callback(t *testing.T, page *browsertest.Page) url.Values {
	t.Helper()
	if page.Status != http.StatusSeeOther {
		t.Fatalf("%d: %s", page.Status, page.Text())
	}
	to, err := url.Parse(page.Location())
	if err != nil {
		t.Fatal(err)
	}
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

func TestApproval_SendsCodeForPermissionsOnThePage(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	ada := site.Member(perm.ProgrammesRead, perm.EngageReadForms)
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	answer := approve(site.SignedIn(ada).Get(request(connector(assistant), nil)))
	query := callback(t, answer)
	if !strings.HasPrefix(answer.Location(), fixture.Callback+"?code=") || query.Get("state") != state ||
		query.Get("iss") != browsertest.Issuer ||
		len(query) != 3 {
		t.Errorf("sent to %s with %d parameters", fixture.Callback, len(query))
	}
	if strings.Contains(answer.Location(), "+") {
		t.Error("a plus sign in the address: not every client reads it as a space")
	}
	if answer.Body != "" {
		t.Error("the redirect has a body")
	}
	issued, err := redeem(site, assistant, query.Get("code"), challenge)
	if err != nil {
		t.Fatal(err)
	}
	g := issued.Grant
	if g.Permissions.Scope() != "programmes:read:programmes" || g.UserID != ada.ID ||
		g.WorkspaceID != site.Fixture.WorkspaceID ||
		g.Resource != browsertest.Resource {
		t.Errorf("grant: %+v", g)
	}
	if life := time.Until(g.Ends); life < 30*24*time.Hour-time.Minute || life > 30*24*time.Hour {
		t.Errorf("the grant lasts %v", life)
	}
}

func TestApproval_PreservesQueryOfRedirectURI(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	const uri = "https://app.example.org/cb?b=%7e&a=1+2&&c"
	site.Fixture.Exec(`update account.oauth_clients set redirect_uris = $2 where id = $1`, app.ID, []string{uri})
	app.Redirects = []string{uri}
	answer := approve(site.SignedIn(site.Member(perm.ProgrammesRead)).Get(request(confidential(app), nil)))
	if !strings.HasPrefix(answer.Location(), uri+"&code=") {
		t.Errorf("%d %.80s", answer.Status, answer.Location())
	}
}

func TestDenial_SendsAccessDenied(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	query := callback(t, deny(site.SignedIn(site.Member(perm.ProgrammesRead)).Get(request(confidential(app), nil))))
	if query.Get("error") != "access_denied" || query.Get("state") != state || query.Get("iss") != browsertest.Issuer ||
		query.Has("code") {
		t.Errorf("%v", query)
	}
	if n := site.Count(`select count(*) from account.grants`); n != 0 {
		t.Errorf("%d grants", n)
	}
}

func TestApproval_TwiceGivesOneGrantWithLatestCode(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	page := site.SignedIn(site.Member(perm.ProgrammesRead)).Get(request(confidential(app), nil))
	first, second := callback(t, approve(page)), callback(t, approve(page))
	if n := site.Count(`select count(*) from account.grants`); n != 1 {
		t.Fatalf("%d grants", n)
	}
	var refused *grant.Refusal
	if _, err := redeem(site, app, first.Get("code"), ""); !errors.As(err, &refused) {
		t.Errorf("the replaced code: %v", err)
	}
	if _, err := redeem(site, app, second.Get("code"), ""); err != nil {
		t.Fatalf("the latest code: %v", err)
	}
	for name, answer := range map[string]*browsertest.Page{"approve": approve(page), "deny": deny(page)} {
		if answer.Status != http.StatusConflict || answer.Location() != "" {
			t.Errorf("%s after redemption: %d to %q", name, answer.Status, answer.Location())
		}
	}
	if n := site.Count(`select count(*) from account.grants where state = 'active'`); n != 1 {
		t.Error("the grant changed")
	}
}

func TestDenial_AfterApprovalInvalidatesUnusedCode(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	page := site.SignedIn(site.Member(perm.ProgrammesRead)).Get(request(confidential(app), nil))
	code := callback(t, approve(page)).Get("code")
	if callback(t, deny(page)).Get("error") != "access_denied" {
		t.Error("the denial was not sent")
	}
	if _, err := redeem(site, app, code, ""); err == nil {
		t.Error("the code still works")
	}
}

// The code is redeemed while a denial of the same page waits for the grant: the denial gets a 409 and does not end the
// grant.
func TestDenial_RacingRedemptionConflicts(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	page := site.SignedIn(site.Member(perm.ProgrammesRead)).Get(request(confidential(app), nil))
	approve(page)
	redemption, err := site.Fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = redemption.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := redemption.Exec(t.Context(), `update account.grants
		set state = 'active', generation = 1`); err != nil {
		t.Fatal(err)
	}
	answer := make(chan *browsertest.Page)
	go func() { answer <- deny(page) }()
	const waiting = `select count(*) from pg_stat_activity where $1 = any (pg_blocking_pids(pid))`
	await.True(t, await.Long, "the denial waits", func() bool {
		return site.Count(waiting, redemption.Conn().PgConn().PID()) > 0
	})
	if err := redemption.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if denied := <-answer; denied.Status != http.StatusConflict || denied.Location() != "" {
		t.Errorf("%d to %q", denied.Status, denied.Location())
	}
	if n := site.Count(`select count(*) from account.grants where state = 'active'`); n != 1 {
		t.Error("the denial ended the grant")
	}
}

func TestApproval_OnlyFromItsOwnSession(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	path := request(confidential(app), nil)
	browser := site.SignedIn(ada)
	form := browser.Get(path).Form("/oauth/authorize")
	form.Set("decision", "approve")
	relogged := site.SignedIn(ada)
	forged := url.Values{"decision": {"approve"}, "ticket": {flip(form.Get("ticket"))}}
	for name, answer := range map[string]*browsertest.Page{
		"signed out":               site.Browser().Post("/oauth/authorize", form),
		"another user":             site.SignedIn(eve).Post("/oauth/authorize", form),
		"the user's other session": relogged.Post("/oauth/authorize", form),
		"a forged ticket":          browser.Post("/oauth/authorize", forged),
		"no ticket":                browser.Post("/oauth/authorize", url.Values{"decision": {"approve"}}),
		"the request alone":        browser.Post(path, url.Values{"decision": {"approve"}}),
	} {
		if answer.Status != http.StatusForbidden || answer.Location() != "" {
			t.Errorf("%s: %d to %q", name, answer.Status, answer.Location())
		}
	}
	for name, header := range map[string]http.Header{
		"foreign origin": {"Origin": {"https://evil.example"}},
		"cross-site":     {"Sec-Fetch-Site": {"cross-site"}},
		"null":           {"Origin": {"null"}},
	} {
		browser.Headers = header
		if answer := browser.Post("/oauth/authorize", form); answer.Status != http.StatusForbidden {
			t.Errorf("%s: %d", name, answer.Status)
		}
	}
	if n := site.Count(`select count(*) from account.grants`); n != 0 {
		t.Fatalf("%d grants", n)
	}
	browser.Headers = http.Header{}
	if answer := browser.Post("/oauth/authorize", form); answer.Status != http.StatusSeeOther {
		t.Errorf("the session that opened the page: %d", answer.Status)
	}
}

func flip(text string) string {
	changed := []byte(text)
	changed[len(changed)/2] ^= 1
	return string(changed)
}

func TestApproval_BadFormIsRefused(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	ticket := browser.Get(request(confidential(app), nil)).Form("/oauth/authorize").Get("ticket")
	for name, form := range map[string]url.Values{
		"no decision":       {"ticket": {ticket}},
		"another decision":  {"ticket": {ticket}, "decision": {"Approve"}},
		"both decisions":    {"ticket": {ticket}, "decision": {"deny", "approve"}},
		"two tickets":       {"ticket": {ticket, ticket}, "decision": {"approve"}},
		"another access":    {"ticket": {ticket}, "decision": {"approve"}, "access": {"write"}},
		"access twice":      {"ticket": {ticket}, "decision": {"approve"}, "access": {"all", "read"}},
		"decision by query": {"ticket": {ticket}},
	} {
		path := "/oauth/authorize"
		if name == "decision by query" {
			path += "?decision=approve"
		}
		if answer := browser.Post(path, form); answer.Status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, answer.Status)
		}
	}
	if answer := browser.Post("/oauth/authorize", url.Values{
		"ticket": {strings.Repeat("a", 70<<10)},
	}); answer.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("70 KiB: %d", answer.Status)
	}
	site.Wait(consent.TicketLife + time.Second)
	if answer := browser.Post("/oauth/authorize", url.Values{
		"ticket":   {ticket},
		"decision": {"approve"},
	}); answer.Status != http.StatusBadRequest {
		t.Errorf("after an hour: %d", answer.Status)
	}
	if n := site.Count(`select count(*) from account.grants`); n != 0 {
		t.Errorf("%d grants", n)
	}
}

// A user who was signed out or waited too long can open the request again from the error page.
func TestApproval_LatePageLinksBackToRequest(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	user := site.Member(perm.ProgrammesRead)
	requestPath := request(confidential(app), nil)
	browser := site.SignedIn(user)
	form := browser.Get(requestPath).Form("/oauth/authorize")
	form.Set("decision", "approve")
	again := func(answer *browsertest.Page) string {
		t.Helper()
		for _, link := range answer.Elements("a") {
			if to := browsertest.Attribute(link, "href"); strings.HasPrefix(to, "/oauth/authorize?") {
				return to
			}
		}
		t.Fatalf("no link to the request: %d %s", answer.Status, answer.Text())
		return ""
	}
	signedOut := site.Browser()
	if answer := signedOut.Post("/oauth/authorize", form); !answer.HasText("You are signed out") ||
		!signedOut.Get(again(answer)).HasText("Sign in") {
		t.Errorf("signed out: %s", answer.Text())
	}
	elsewhere := site.SignedIn(user)
	if answer := elsewhere.Post("/oauth/authorize", form); !answer.HasText("another session") ||
		!elsewhere.Get(again(answer)).HasText(app.Name) {
		t.Errorf("another session: %s", answer.Text())
	}
	site.Wait(consent.TicketLife + time.Second)
	late := browser.Post("/oauth/authorize", form)
	if !late.HasText("has expired") {
		t.Errorf("late: %s", late.Text())
	}
	form = browser.Get(again(late)).Form("/oauth/authorize")
	form.Set("decision", "approve")
	if answer := browser.Post("/oauth/authorize", form); answer.Status != http.StatusSeeOther ||
		!strings.Contains(answer.Location(), "state=") {
		t.Errorf("%d %s", answer.Status, answer.Location())
	}
	long := browser.Get(requestPath + strings.Repeat("&", 9_000)) // longer than what the ticket stores
	form = long.Form("/oauth/authorize")
	form.Set("decision", "approve")
	if answer := browser.Post("/oauth/authorize", form); answer.Status != http.StatusSeeOther {
		t.Errorf("a long request: %d", answer.Status)
	}
	stranger := site.SignedIn(site.Member(perm.ProgrammesRead))
	if answer := stranger.Post("/oauth/authorize", url.Values{
		"ticket":   {flip(form.Get("ticket"))},
		"decision": {"approve"},
	}); !answer.HasText("start again") || len(answer.Elements("form")) > 1 {
		t.Errorf("a forged ticket: %s", answer.Text())
	}
}

func TestApproval_RightsLostWhilePageWasOpenAreRefused(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	both := []perm.Permission{perm.ProgrammesRead, perm.ProgrammesWrite}
	for name, c := range map[string]struct {
		kind   client.Kind
		change func(user, app uuid.UUID)
		status int
	}{
		"membership": {client.Connector, func(user, _ uuid.UUID) {
			site.Fixture.Exec(`delete from account.memberships where user_id = $1`, user)
		}, 403},
		"every permission": {client.Connector, func(user, _ uuid.UUID) {
			site.Fixture.Exec(`update account.memberships set permissions = '{engage:read:forms}'
				where user_id = $1`, user)
		}, 403},
		"one that a confidential client requires": {client.Confidential, func(user, _ uuid.UUID) {
			site.Fixture.Exec(`update account.memberships set permissions = '{programmes:read:programmes}'
				where user_id = $1`, user)
		}, 403},
		"LLM integration": {client.Connector, func(uuid.UUID, uuid.UUID) { site.Fixture.SetLLM(false) }, 403},
		"the application": {client.Confidential, func(_, app uuid.UUID) {
			site.Fixture.Exec(`update account.oauth_clients set deleted_at = now() where id = $1`, app)
		}, 400},
		"its address": {client.Confidential, func(_, app uuid.UUID) {
			site.Fixture.Exec(`update account.oauth_clients set redirect_uris = '{https://elsewhere.example/cb}'
				where id = $1`, app)
		}, 400},
	} {
		ada := site.Member(both...)
		app, _ := site.Fixture.Confidential(both...)
		path := request(confidential(app), nil)
		if c.kind == client.Connector {
			app = site.Fixture.Connector(browsertest.Resource, both...)
			path = request(connector(app), nil)
		}
		page := site.SignedIn(ada).Get(path)
		c.change(ada.ID, app.ID)
		answer := approve(page)
		if answer.Status != c.status || answer.Location() != "" {
			t.Errorf("%s lost: %d to %q", name, answer.Status, answer.Location())
		}
		if n := site.Count(`select count(*) from account.grants where client_id = $1`, app.ID); n != 0 {
			t.Errorf("%s lost: %d grants", name, n)
		}
		site.Fixture.SetLLM(true)
	}
}

func TestApproval_ConnectorGetsRemainingPermissionsOnThePage(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	requestPath := []perm.Permission{perm.ProgrammesRead, perm.ProgrammesWrite, perm.EngageReadForms}
	ada := site.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	assistant := site.Fixture.Connector(browsertest.Resource, requestPath...)
	page := site.SignedIn(ada).Get(request(connector(assistant), nil))
	site.Fixture.Exec(
		`update account.memberships set permissions = '{programmes:read:programmes,engage:read:forms}'
			where user_id = $1`,
		ada.ID,
	)
	issued, err := redeem(site, assistant, callback(t, approve(page)).Get("code"), challenge)
	if err != nil {
		t.Fatal(err)
	}
	if issued.Grant.Permissions.Scope() != "programmes:read:programmes" {
		t.Errorf("granted %s", issued.Grant.Permissions.Scope())
	}
}

func TestApproval_ConnectorCanBeGivenReadOnlyAccess(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	ada := site.Member(perm.ProgrammesRead, perm.ProgrammesWrite, perm.EngageReadForms)
	assistant := site.Fixture.Connector(
		browsertest.Resource,
		perm.ProgrammesRead,
		perm.ProgrammesWrite,
		perm.EngageReadForms,
	)
	browser := site.SignedIn(ada)
	page := browser.Get(request(connector(assistant), nil))
	if access := page.Form("/oauth/authorize")["access"]; len(access) != 1 || access[0] != "all" {
		t.Fatalf("preselected access: %v", access)
	}
	answer := page.Send("/oauth/authorize", browsertest.Fields{"decision": "approve", "access": "read"})
	issued, err := redeem(site, assistant, callback(t, answer).Get("code"), challenge)
	if err != nil {
		t.Fatal(err)
	}
	if issued.Grant.Permissions.Scope() != "programmes:read:programmes engage:read:forms" {
		t.Errorf("granted %s", issued.Grant.Permissions.Scope())
	}
	reading := browser.Get(request(connector(assistant), map[string]string{"scope": "programmes:read:programmes"}))
	if reading.Form("/oauth/authorize").Has("access") {
		t.Error("a choice is offered although the grant is read-only")
	}
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	whole := browser.Get(request(confidential(app), nil))
	if whole.Form("/oauth/authorize").Has("access") {
		t.Error("a choice is offered for a confidential client, which needs every required permission")
	}
	for name, p := range map[string]*browsertest.Page{"reading": reading, "confidential": whole} {
		if answer := p.Send("/oauth/authorize", browsertest.Fields{
			"decision": "approve",
			"access":   "read",
		}); answer.Status != http.StatusBadRequest {
			t.Errorf("%s: a choice that was not on the page: %d", name, answer.Status)
		}
	}
}

func TestConsent_UnavailableDuringStoreOutage(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	path := request(confidential(app), nil)
	page := browser.Get(path)
	site.Redis.Pause()
	if answer := approve(page); answer.Status != http.StatusServiceUnavailable ||
		answer.Header.Get("Retry-After") == "" {
		t.Errorf("without Redis: %d", answer.Status)
	}
	site.Redis.Resume()
	restore := site.CutPostgres()
	for name, answer := range map[string]*browsertest.Page{"page": browser.Get(path), "approval": approve(page)} {
		if answer.Status != http.StatusServiceUnavailable || answer.Location() != "" {
			t.Errorf("%s without Postgres: %d", name, answer.Status)
		}
	}
	restore()
	if _, err := redeem(site, app, callback(t, approve(page)).Get("code"), ""); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestAuthorize_SecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	page := browser.Get(request(confidential(app), nil))
	code := callback(t, approve(page)).Get("code")
	for name, secret := range map[string]string{
		"code":     code,
		"ticket":   page.Form("/oauth/authorize").Get("ticket"),
		"cookie":   browser.Cookies()[0].Value,
		"password": browsertest.Password,
	} {
		if strings.Contains(site.Log.String(), secret) {
			t.Errorf("the %s is in the log", name)
		}
	}
}

// The clock of the approving process does not move the grant's end (grants.md, G4).
func TestApproval_ProcessClockDoesNotMoveGrantEnd(t *testing.T) {
	t.Parallel()
	for what, off := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		site := browsertest.Start(t)
		ada := site.Member(perm.ProgrammesRead)
		assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
		person := site.SignedIn(ada)
		site.Wait(off)
		callback(t, approve(person.Get(request(connector(assistant), nil))))
		life := int(assistant.Kind.Traits().GrantLife.Seconds())
		if n := site.Count(`select count(*) from account.grants
			where ends_at between now() + make_interval(secs => $1 - 60)
			and now() + make_interval(secs => $1)`, life); n != 1 {
			t.Errorf("a clock that is an hour %s: %d grants end in 30 days by the store's clock, want 1", what, n)
		}
	}
}

// After a revocation for reuse, the consent page preselects the user's former choice.
func TestConsentPage_ProposesFormerChoice(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	ada := site.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	browser := site.SignedIn(ada)
	proposed := func(what, want string) {
		t.Helper()
		page := browser.Get(request(connector(app), nil))
		if access := page.Form("/oauth/authorize")["access"]; len(access) != 1 || access[0] != want {
			t.Errorf("%s: the page proposes %v, want %s", what, access, want)
		}
	}
	proposed("at first", "all")
	narrow := app
	narrow.Required = perm.NewSet(perm.ProgrammesRead)
	g := site.Redeemed(narrow, ada.ID)
	proposed("while it is connected", "all")
	if err := site.Store.Revoke(t.Context(), g.Key(), grant.Replayed, "client", &grant.Ending{}); err != nil {
		t.Fatal(err)
	}
	proposed("after a replay", "read")
	g = site.Redeemed(app, ada.ID)
	if err := site.Store.Revoke(t.Context(), g.Key(), grant.Replayed, "client", &grant.Ending{}); err != nil {
		t.Fatal(err)
	}
	proposed("after a replay of more", "all")
	g = site.Redeemed(narrow, ada.ID)
	if err := site.Store.Revoke(t.Context(), g.Key(), grant.ByUser, "user", nil); err != nil {
		t.Fatal(err)
	}
	proposed("after it was disconnected", "all")
}
