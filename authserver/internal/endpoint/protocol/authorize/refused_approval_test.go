package authorize_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestApproval_OnlyFromItsOwnSession(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
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
	site := browsertest.Own(t)
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
	site := browsertest.Own(t)
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
	site := browsertest.Own(t)
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

func TestConsent_UnavailableDuringStoreOutage(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
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
