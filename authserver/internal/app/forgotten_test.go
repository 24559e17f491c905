package app_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// forgotten requests a link and returns its path.
func (p post) forgotten(who browsertest.Person, n int) string {
	p.t.Helper()
	page := p.browser().Get("/login/forgotten").Send("/login/forgotten", browsertest.Fields{"email": who.Email})
	if page.Location() != "/login/forgotten?requested=1" || !page.Follow().HasText("If there is an account") {
		p.t.Fatalf("%d %s", page.Status, page.Text())
	}
	return p.link(p.mail(who.Email, "Set a new password", n))
}

// TestForgotten_LinkSetsPasswordOnceAndEndsSignIns (F2, F3, F4) also checks that earlier links end with the first use.
func TestForgotten_LinkSetsPasswordOnceAndEndsSignIns(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	earlier := p.signedIn(who)
	first, second := p.forgotten(who, 1), p.forgotten(who, 2)
	for range 2 { // opening a link, as scanners of mail do, does not use it
		if page := p.browser().Get(first); page.Status != 200 || !page.HasText(who.Email) {
			t.Fatalf("%d %s", page.Status, page.Text())
		}
	}
	form := p.browser().Get(second)
	for chosen, want := range map[string]string{"short": "at least 12", "password1234": "easy to guess"} {
		refused := form.Send("/login/reset", browsertest.Fields{"new-password": chosen})
		if refused.Status != 400 || !refused.HasText(want) {
			t.Errorf("%s: %d %s", chosen, refused.Status, refused.Text())
		}
	}
	done := form.Send("/login/reset", browsertest.Fields{"new-password": newPassword})
	if done.Location() != "/login?password-set=1" || !done.Follow().HasText("Your new password is set") {
		t.Fatalf("%d %s", done.Status, done.Text())
	}
	if inside(earlier) {
		t.Error("a browser is still signed in")
	}
	for _, link := range []string{first, second} {
		if page := p.browser().Get(link); page.Status != 404 {
			t.Errorf("a used link: %d %s", page.Status, page.Text())
		}
	}
	if again := form.Send("/login/reset", browsertest.Fields{"new-password": newPassword + "2"}); again.Status != 404 {
		t.Errorf("second use: %d", again.Status)
	}
	old := p.browser().Post("/login", url.Values{"email": {who.Email}, "password": {browsertest.Password}})
	now := p.browser().Post("/login", url.Values{"email": {who.Email}, "password": {newPassword}})
	if old.Status != 400 || now.Status != 303 {
		t.Errorf("sign-in: old %d, new %d", old.Status, now.Status)
	}
	p.mail(who.Email, "Your password was changed", 1)
	if p.events(who.ID, audit.UserResetRequested) != 2 || p.events(who.ID, audit.UserPasswordReset) != 1 {
		t.Error("events are missing")
	}
	for _, link := range []string{first, second} {
		if token := strings.TrimPrefix(link, "/login/reset?token="); strings.Contains(p.log.String(), token) {
			t.Error("the log has the secret of a link")
		}
	}
}

// TestForgotten_ResetRemovesPasskeysOnlyOnRequest checks that sign-in methods survive a reset only without the request.
func TestForgotten_ResetRemovesPasskeysOnlyOnRequest(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	const link = `insert into account.identities (issuer, subject, user_id) values ('https://id.test', 'x', $1)`
	p.fixture.Exec(link, who.ID)
	count := func() int { return p.count(`select count(*) from account.identities where user_id = $1`, who.ID) }
	form := p.browser().Get(p.forgotten(who, 1))
	form.Send("/login/reset", browsertest.Fields{"new-password": newPassword})
	if count() != 1 {
		t.Fatal("the linked account was removed without a request")
	}
	form = p.browser().Get(p.forgotten(who, 2))
	form.Send("/login/reset", browsertest.Fields{"new-password": newPassword + " two", "remove": "yes"})
	if count() != 0 || p.events(who.ID, audit.IdentityUnlinked) != 1 {
		t.Error("the linked account is still there")
	}
}

// TestForgotten_LinkByMailKeepsRequiredPasskeys (F5): where a workspace requires a second factor, a link by mail
// removes linked accounts only, and a link of an operator removes passkeys too.
func TestForgotten_LinkByMailKeepsRequiredPasskeys(t *testing.T) {
	p := serveMail(t)
	who := p.person()
	p.fixture.Exec(`insert into account.identities (issuer, subject, user_id) values ('https://id.test', 'x', $1)`,
		who.ID)
	p.fixture.Exec(`insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid,
		transports, backup_eligible, backed_up)
		values (gen_random_uuid(), $1, 'Laptop', 'a credential', 'k', 0, '', '{}', false, false)`, who.ID)
	p.fixture.Join(p.fixture.WorkspaceID, who.ID, perm.ProgrammesRead)
	p.fixture.Exec(`update account.tenants set second_factor_required = true where id = $1`, p.fixture.WorkspaceID)
	left := func() string {
		return fmt.Sprintf("%d passkeys, %d linked accounts",
			p.count(`select count(*) from account.passkeys where user_id = $1`, who.ID),
			p.count(`select count(*) from account.identities where user_id = $1`, who.ID))
	}
	form := p.browser().Get(p.forgotten(who, 1))
	if !form.HasText("Your passkeys stay") || form.HasText("Remove my passkeys") {
		t.Errorf("the page of a link by mail: %s", form.Text())
	}
	form.Send("/login/reset", browsertest.Fields{"new-password": newPassword, "remove": "yes"})
	if now := left(); now != "1 passkeys, 0 linked accounts" {
		t.Errorf("after a link by mail: %s", now)
	}
	form = p.browser().Get(p.forgotten(who, 2))
	form.Send("/login/reset", browsertest.Fields{"new-password": newPassword + " two", "remove": "yes"})
	if now := left(); now != "1 passkeys, 0 linked accounts" || p.count(`select count(*) from account.audit_events
		where user_id = $1 and action = $2 and detail->>'others_removed' = 'true'`, who.ID,
		audit.UserPasswordReset) != 1 {
		t.Errorf("after a second link by mail: %s, or the event says that it removed something", now)
	}
	link := p.operatorsLink(who)
	if form = p.browser().Get(link); form.HasText("Your passkeys stay") {
		t.Errorf("the page of an operator's link: %s", form.Text())
	}
	form.Send("/login/reset", browsertest.Fields{"new-password": newPassword + " three", "remove": "yes"})
	if now := left(); now != "0 passkeys, 0 linked accounts" || p.events(who.ID, audit.PasskeyRemoved) != 1 {
		t.Errorf("after an operator's link: %s", now)
	}
}

// operatorsLink stores a link as the command users reset-link does, and returns its path.
func (p post) operatorsLink(who browsertest.Person) string {
	p.t.Helper()
	const token = "the token of an operator's link"
	p.fixture.Exec(`insert into account.password_resets (token_hash, user_id, expires_at, by_operator)
		values ($1, $2, now() + interval '1 hour', true)`, password.HashToken(token), who.ID)
	return "/login/reset?token=" + url.QueryEscape(token)
}

// TestForgotten_UnknownAddressIsIndistinguishable (F1) checks that the response and the written rows are the same for
// a known address, one without an account and one of a disabled account, and that only the known one gets a mail.
func TestForgotten_UnknownAddressIsIndistinguishable(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	known, disabled := p.person(), p.person()
	p.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled.ID)
	var answers []string
	for i, email := range []string{"nobody@example.org", disabled.Email, known.Email} {
		page := p.browser().Post("/login/forgotten", url.Values{"email": {email}})
		answers = append(answers, page.Location()+page.Body)
		// A job of another kind is queued at the start.
		if n := p.count(`select count(*) from account_jobs.river_job where kind <> 'periodic'`); n != i+1 {
			t.Errorf("%s: %d jobs, want %d", email, n, i+1)
		}
	}
	if answers[0] != answers[2] || answers[1] != answers[2] {
		t.Errorf("%q", answers)
	}
	p.mail(known.Email, "Set a new password", 1) // queued last, and two are sent at once
	await.True(t, "all mails were tried", func() bool {
		return p.count(`select count(*) from account_jobs.river_job where state <> 'completed'`) == 0
	})
	if n := len(p.box.Messages("")); n != 1 {
		t.Errorf("%d mails", n)
	}
}

// TestForgotten_OneOfTwoUsesWins (F3).
func TestForgotten_OneOfTwoUsesWins(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	form := p.browser().Get(p.forgotten(who, 1))
	statuses := make([]int, 8)
	var all sync.WaitGroup
	for i := range statuses {
		all.Go(func() {
			statuses[i] = form.Send("/login/reset", browsertest.Fields{"new-password": newPassword}).Status
		})
	}
	all.Wait()
	won := 0
	for _, status := range statuses {
		switch status {
		case 303:
			won++
		case 404, 429:
		default:
			t.Errorf("status %d", status)
		}
	}
	if won != 1 || p.events(who.ID, audit.UserPasswordReset) != 1 {
		t.Errorf("%d uses won: %v", won, statuses)
	}
}

// TestForgotten_EndedLinkIsRefused moves the end of a link into the past.
func TestForgotten_EndedLinkIsRefused(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	link := p.forgotten(who, 1)
	form := p.browser().Get(link)
	p.fixture.Exec(`update account.password_resets set expires_at = now() - interval '1 second'`)
	if page := p.browser().Get(link); page.Status != 404 {
		t.Errorf("%d", page.Status)
	}
	if page := form.Send("/login/reset", browsertest.Fields{"new-password": newPassword}); page.Status != 404 {
		t.Errorf("%d", page.Status)
	}
}

// TestForgotten_RequestsAreLimited checks the limit per account, which the response does not show, and the limit
// per network.
func TestForgotten_RequestsAreLimited(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	statuses := map[int]int{}
	for range 31 {
		statuses[p.browser().Post("/login/forgotten", url.Values{"email": {who.Email}}).Status]++
	}
	if statuses[303] != 30 || statuses[429] != 1 {
		t.Errorf("%v", statuses)
	}
	await.True(t, "all mails were tried", func() bool {
		return p.count(`select count(*) from account_jobs.river_job where state <> 'completed'`) == 0
	})
	if n := len(p.box.Messages(who.Email)); n != 3 {
		t.Errorf("%d mails", n)
	}
}

func TestForgotten_WithoutMailSaysSo(t *testing.T) {
	t.Parallel()
	s := serve(t, func(*app.Config) {})
	for _, page := range []*browsertest.Page{
		s.browser().Get("/login/forgotten"),
		s.browser().Post("/login/forgotten", url.Values{"email": {"ada@example.org"}}),
	} {
		if page.Status != 200 || !page.HasText("sends no mail") || !page.HasText("the person who runs this service") {
			t.Errorf("%d %s", page.Status, page.Text())
		}
	}
}
