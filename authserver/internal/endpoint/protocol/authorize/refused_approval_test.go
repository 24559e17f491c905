package authorize_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestApproval_OnlyFromItsOwnSession(t *testing.T) {
	site := shared(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	path := request(confidential(app))
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
		answer.As(name).Wants(http.StatusForbidden).LeadsTo("")
	}
	for name, header := range map[string]http.Header{
		"foreign origin": {"Origin": {"https://evil.example"}},
		"cross-site":     {"Sec-Fetch-Site": {"cross-site"}},
		"null":           {"Origin": {"null"}},
	} {
		browser.Headers = header
		browser.Post("/oauth/authorize", form).As(name).Wants(http.StatusForbidden)
	}
	site.Rows(0, "grants", "")
	browser.Headers = http.Header{}
	browser.Post("/oauth/authorize", form).Wants(http.StatusSeeOther)
}

func flip(text string) string {
	changed := []byte(text)
	changed[len(changed)/2] ^= 1
	return string(changed)
}

func TestApproval_BadFormIsRefused(t *testing.T) {
	site := own(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	ticket := browser.Get(request(confidential(app))).Form("/oauth/authorize").Get("ticket")
	for name, form := range map[string]url.Values{
		"no decision":      {"ticket": {ticket}},
		"another decision": {"ticket": {ticket}, "decision": {"Approve"}},
		"both decisions":   {"ticket": {ticket}, "decision": {"deny", "approve"}},
		"two tickets":      {"ticket": {ticket, ticket}, "decision": {"approve"}},
		"another access":   {"ticket": {ticket}, "decision": {"approve"}, "access": {"write"}},
		"access twice":     {"ticket": {ticket}, "decision": {"approve"}, "access": {"all", "read"}},
	} {
		browser.Post("/oauth/authorize", form).As(name).Wants(http.StatusBadRequest)
	}
	byQuery := browser.Post("/oauth/authorize?decision=approve", url.Values{"ticket": {ticket}})
	byQuery.As("decision by query").Wants(http.StatusBadRequest)
	browser.Post("/oauth/authorize", url.Values{"ticket": {strings.Repeat("a", 70<<10)}}).
		Wants(http.StatusRequestEntityTooLarge)
	site.Wait(consent.TicketLife + time.Second)
	browser.Post("/oauth/authorize", url.Values{"ticket": {ticket}, "decision": {"approve"}}).
		Wants(http.StatusBadRequest)
	site.Rows(0, "grants", "")
}

// A user who was signed out or waited too long can open the request again from the error page.
func TestApproval_LatePageLinksBackToRequest(t *testing.T) {
	site := own(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	user := site.Member(perm.ProgrammesRead)
	requestPath := request(confidential(app))
	browser := site.SignedIn(user)
	form := browser.Get(requestPath).Form("/oauth/authorize")
	form.Set("decision", "approve")
	const again = "/oauth/authorize?"
	signedOut, elsewhere := site.Browser(), site.SignedIn(user)
	answer := signedOut.Post("/oauth/authorize", form).Says("You are signed out")
	signedOut.Get(answer.Link(again)).Says("Sign in")
	answer = elsewhere.Post("/oauth/authorize", form).Says("another session")
	elsewhere.Get(answer.Link(again)).Says(app.Name)
	site.Wait(consent.TicketLife + time.Second)
	late := browser.Post("/oauth/authorize", form).Says("has expired")
	if !callback(t, approve(browser.Get(late.Link(again)))).Has("state") {
		t.Error("no state")
	}
	long := browser.Get(requestPath + strings.Repeat("&", 9_000)) // longer than what the ticket stores
	approve(long).Wants(http.StatusSeeOther)
	form = long.Form("/oauth/authorize")
	stranger := site.SignedIn(site.Member(perm.ProgrammesRead))
	if answer := stranger.Post("/oauth/authorize", url.Values{
		"ticket":   {flip(form.Get("ticket"))},
		"decision": {"approve"},
	}); !answer.HasText("start again") || len(answer.Elements("form")) > 1 {
		t.Errorf("a forged ticket: %s", answer.Text())
	}
}

func TestApproval_RightsLostWhilePageWasOpenAreRefused(t *testing.T) {
	site := shared(t)
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
			site.SetPermissions(user, perm.EngageReadForms)
		}, 403},
		"one that a confidential client requires": {client.Confidential, func(user, _ uuid.UUID) {
			site.SetPermissions(user, perm.ProgrammesRead)
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
		path := request(confidential(app))
		if c.kind == client.Connector {
			app = site.Fixture.Connector(browsertest.Resource, both...)
			path = request(connector(app))
		}
		page := site.SignedIn(ada).Get(path)
		c.change(ada.ID, app.ID)
		approve(page).As(name).Wants(c.status).LeadsTo("")
		site.Rows(0, "grants", `client_id = $1`, app.ID)
		site.Fixture.SetLLM(true)
	}
}

func TestConsent_UnavailableDuringStoreOutage(t *testing.T) {
	site := own(t, func(c *app.Config, _ string) { c.StoreWait = testkit.SilentStoreWait })
	program, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	path := request(confidential(program))
	page := browser.Arranged(func() *browsertest.Page { return browser.Get(path) })
	site.Must(site.Redis.Pause())
	approve(page).As("without Redis").Wants(http.StatusServiceUnavailable).HasHeader("Retry-After")
	site.Redis.Resume()
	restore := site.CutPostgres()
	for name, answer := range map[string]*browsertest.Page{"page": browser.Get(path), "approval": approve(page)} {
		answer.As(name).Wants(http.StatusServiceUnavailable).LeadsTo("")
	}
	restore()
	approved := browser.Arranged(func() *browsertest.Page { return approve(page) })
	if _, err := redeem(site, program, callback(t, approved).Get("code"), ""); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
