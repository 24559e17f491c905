package settings_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// After joining, the page has links to three things: the first ones that the user may do.
func TestWelcome_LinksWhatUserMayDo(t *testing.T) {
	site := own(t)
	here := "/settings/welcome?tenant=" + site.Fixture.WorkspaceID.String()
	manager := []perm.Permission{perm.ProgrammesRead, perm.AccountReadMembers, perm.AccountAPIAccess}
	const connect, app = "/settings/connect", authenticatorPath
	for _, c := range []struct {
		name  string
		held  []perm.Permission
		llm   bool
		must  bool // the workspace requires two-step sign-in
		steps []string
	}{
		{"a manager", manager, true, false, []string{connect, members, newToken}},
		{"a reader", manager[:1], true, false, []string{connect, app, "/settings/user"}},
		{"a manager, without assistants", manager, false, false, []string{members, newToken, app}},
		{"nothing for assistants", manager[1:2], true, false, []string{members, app, "/settings/user"}},
		{"a reader who needs two-step sign-in", manager[:1], true, true,
			[]string{app, connect, "/settings/user"}},
	} {
		site.Fixture.SetLLM(c.llm)
		if c.must {
			requireFactor(site)
		}
		page := site.SignedIn(site.Member(c.held...)).Get(here).As(c.name)
		page.Wants(http.StatusOK, "Welcome to Riverside Food Bank")
		var steps []string
		for _, link := range page.All(".rows a.button", "href") {
			path, _, _ := strings.Cut(link, "?")
			steps = append(steps, path)
		}
		if !slices.Equal(steps, c.steps) {
			t.Errorf("%s: %q, want %q", c.name, steps, c.steps)
		}
	}
	site.SignedIn(site.Stranger()).Get(here).Wants(http.StatusForbidden).Lacks("Riverside")
}

// Events with the same words that follow each other are one line with their number. Older ones are on further pages.
func TestSecurity_GroupsEventsAndLinksOlderOnes(t *testing.T) {
	site := shared(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	record := func(n int, action string) {
		site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail,
				request_id, at)
			select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', $1, 'user:' || $1::uuid, $2, 'x', '{}',
				'', clock_timestamp() - (n || ' seconds')::interval
			from generate_series(1, $3::int) n`, ada.ID, action, n)
	}
	record(60, audit.UserRenamed)
	record(1, audit.UserPasswordChanged)
	site.Fixture.Exec(`update account.audit_events set at = at - interval '1 hour' where user_id = $1 and action <> $2`,
		ada.ID, audit.UserPasswordChanged)
	summary := browser.Get("/settings/security")
	summary.Says("You changed your password", "You changed your name 28 times")
	all := browser.Get(summary.Link("/settings/security/events"))
	all.Says("You changed your password", "You changed your name 48 times")
	older := browser.Get(all.Link("/settings/security/events?before="))
	older.Says("You changed your name 12 times", "Show latest").Lacks("changed your password", "Show older")
	site.SignedIn(eve).Get(all.Link("/settings/security/events?before=")).Lacks("You changed your name")
	// The request that ended a connection was refused: one event.
	for _, action := range []string{audit.GrantRevoked, audit.GrantRefused} {
		site.Fixture.Exec(`insert into account.audit_events (id, at, tenant_id, user_id, actor, action, subject, detail,
				request_id)
			values (gen_random_uuid(), clock_timestamp(), $1, $2, 'client:x', $3, 'x',
				'{"reason": "refresh_token_replayed"}', 'req-1')`, site.Fixture.WorkspaceID, ada.ID, action)
	}
	browser.Get("/settings/security").Says("was disconnected because an old access key was used again").
		Lacks("was refused")
}

// The codes come back from the page as a file, only to the user who got them and while the page is new.
func TestAuthenticator_CodesAreDownloaded(t *testing.T) {
	site := own(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	browser, other := site.SignedIn(ada), site.SignedIn(eve)
	withApp(t, browser)
	withApp(t, other)
	const path = authenticatorPath + "/codes.txt"
	page := browser.Get(authenticatorPath).Send(authenticatorPath+"/codes", nil)
	form := page.Form(path)
	file := browser.Post(path, form)
	if file.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		file.Header.Get("Content-Disposition") != `attachment; filename="recovery-codes.txt"` ||
		file.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the file has %v", file.Header)
	}
	for _, code := range append(codesOn(page), ada.Email) {
		if !strings.Contains(file.Body, code+"\r\n") && !strings.Contains(file.Body, code+" at") {
			t.Errorf("the file lacks %s: %s", code, file.Body)
		}
		if strings.Contains(form.Get("codes"), code) {
			t.Error("the form has the codes in the clear")
		}
	}
	stolen := other.Get(authenticatorPath).Send(authenticatorPath+"/codes", nil).Form(path)
	stolen["codes"] = form["codes"]
	other.Post(path, stolen).As("another user").Wants(http.StatusSeeOther).Follow().Says("Nothing was downloaded")
	site.Wait(31 * time.Minute)
	browser.Post(path, form).As("too late").LeadsTo(authenticatorPath).Follow().Says("Nothing was downloaded")
}
