package app_test

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

const (
	newPassword   = "tide lantern quarry"
	forgottenPage = "/login/forgotten"
	resetPage     = "/login/reset"
	subjectReset  = "Set a new password"
)

// forgotten requests a link and returns its path.
func (s *site) forgotten(who browsertest.Person) string {
	s.t.Helper()
	n := len(s.letters(who.Email, subjectReset)) + 1
	page := s.browser().Get(forgottenPage).Send(forgottenPage, browsertest.Fields{"email": who.Email})
	s.needs("the request", page, 303, "/login/forgotten?requested=1")
	s.needs("the page after it", page.Follow(), 200, "If there is an account")
	return s.link(s.mail(who.Email, subjectReset, n))
}

// operatorsLink stores a link as the command users reset-link does, and returns its path.
func (s *site) operatorsLink(who browsertest.Person) string {
	s.t.Helper()
	token := rand.Text()
	s.fixture.Exec(`insert into account.password_resets (token_hash, user_id, expires_at, by_operator)
		values ($1, $2, now() + interval '1 hour', true)`, password.HashToken(credential.Secret(token)), who.ID)
	return resetPage + "?token=" + token
}

// sets sends the form of a link with a new password.
func sets(form *browsertest.Page, chosen string) *browsertest.Page {
	return form.Send(resetPage, browsertest.Fields{"new-password": chosen})
}

// F2, F3, F4. Earlier links end with the first use.
func TestForgotten_LinkSetsPasswordOnceAndEndsSignIns(t *testing.T) {
	s := mailing(t)
	who := s.person()
	earlier := s.signedIn(who)
	first, second := s.forgotten(who), s.forgotten(who)
	for range 2 { // opening a link, as scanners of mail do, does not use it
		s.needs("the link", s.browser().Get(first), 200, who.Email)
	}
	form := s.browser().Get(second)
	for chosen, refusal := range map[string]string{"short": "at least 12", "password1234": "easy to guess"} {
		s.wants(chosen, sets(form, chosen), 400, refusal)
	}
	done := sets(form, newPassword)
	s.needs("a good password", done, 303, "/login?password-set=1")
	s.needs("the page after it", done.Follow(), 200, "Your new password is set")
	equal(t, "a browser is signed in", inside(earlier), false)
	s.wants("a used link", s.browser().Get(first), 404)
	s.wants("a used link", s.browser().Get(second), 404)
	s.wants("second use", sets(form, newPassword+"2"), 404)
	equal(t, "sign-in with the old password", s.tries(who.Email, browsertest.Password), 400)
	equal(t, "sign-in with the new password", s.tries(who.Email, newPassword), 303)
	s.mail(who.Email, "Your password was changed", 1)
	s.recorded(2, audit.UserResetRequested, who.ID)
	s.recorded(1, audit.UserPasswordReset, who.ID)
	omits(t, "the log", s.log.String(), tokenOf(first), tokenOf(second))
}

// addLink links an account at another provider.
func (s *site) addLink(who browsertest.Person) {
	s.t.Helper()
	s.fixture.Exec(`insert into account.identities (issuer, subject, user_id)
		values ('https://id.test', $1::uuid::text, $1)`, who.ID)
}

func TestForgotten_ResetRemovesPasskeysOnlyOnRequest(t *testing.T) {
	s := mailing(t)
	who := s.person()
	s.addLink(who)
	sets(s.browser().Get(s.forgotten(who)), newPassword)
	s.rows(1, "identities", "user_id = $1", who.ID)
	s.browser().Get(s.forgotten(who)).
		Send(resetPage, browsertest.Fields{"new-password": newPassword + " two", "remove": "yes"})
	s.rows(0, "identities", "user_id = $1", who.ID)
	s.recorded(1, audit.IdentityUnlinked, who.ID)
}

// F5: where a workspace requires a second factor, a link by mail removes linked accounts only, and a link of an
// operator removes passkeys too.
func TestForgotten_LinkByMailKeepsRequiredPasskeys(t *testing.T) {
	s := mailing(t)
	who := s.member(perm.ProgrammesRead)
	s.addLink(who)
	s.insertPasskeys(1, who)
	s.fixture.Exec(`update account.tenants set second_factor_required = true where id = $1`, s.fixture.WorkspaceID)
	resets := func(link, chosen string, passkeys, links int) *browsertest.Page {
		t.Helper()
		form := s.browser().Get(link)
		form.Send(resetPage, browsertest.Fields{"new-password": chosen, "remove": "yes"})
		s.rows(passkeys, "passkeys", "user_id = $1", who.ID)
		s.rows(links, "identities", "user_id = $1", who.ID)
		return form
	}
	form := resets(s.forgotten(who), newPassword, 1, 0)
	s.wants("the page of a link by mail", form, 200, "Your passkeys stay")
	s.lacks("the page of a link by mail", form, "Remove my passkeys")
	resets(s.forgotten(who), newPassword+" two", 1, 0)
	s.rows(1, "audit_events", "user_id = $1 and action = $2 and detail->>'others_removed' = 'true'", who.ID,
		audit.UserPasswordReset) // that of the first link: the second removed nothing
	form = resets(s.operatorsLink(who), newPassword+" three", 0, 0)
	s.lacks("the page of an operator's link", form, "Your passkeys stay")
	s.recorded(1, audit.PasskeyRemoved, who.ID)
}

// F1: the response and the written rows are the same for a known address, one without an account and one of a disabled
// account. Only the known one gets a mail. The service is the test's own, because it counts all jobs.
func TestForgotten_UnknownAddressIsIndistinguishable(t *testing.T) {
	s := ownMailing(t)
	known, disabled := s.person(), s.person()
	s.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled.ID)
	var answers []string
	for i, email := range []string{"nobody@example.org", disabled.Email, known.Email} {
		page := s.browser().Post(forgottenPage, url.Values{"email": {email}})
		answers = append(answers, page.Location()+page.Body)
		// A job of another kind is queued at the start.
		jobs := read[int](s, `select count(*) from account_jobs.river_job where kind <> 'periodic'`)
		equal(t, fmt.Sprintf("jobs after request %d", i), jobs, i+1)
	}
	equal(t, "an unknown address", answers[0], answers[2])
	equal(t, "a disabled user", answers[1], answers[2])
	s.mail(known.Email, subjectReset, 1) // queued last, and two are sent at once
	s.awaitJobs("mail")
	equal(t, "mails", len(s.box.Messages("")), 1)
}

// awaitJobs waits until every job of a kind is done.
func (s *site) awaitJobs(kind string) {
	s.t.Helper()
	await.True(s.t, "no job of the kind "+kind+" waits", func() bool {
		return read[int](s, `select count(*) from account_jobs.river_job where kind = $1 and state <> 'completed'`,
			kind) == 0
	})
}

// F3.
func TestForgotten_OneOfTwoUsesWins(t *testing.T) {
	s := mailing(t)
	who := s.person()
	form := s.browser().Get(s.forgotten(who))
	statuses := atOnce(8, func(int) *browsertest.Page { return sets(form, newPassword) })
	if statuses[303] != 1 || statuses[404]+statuses[429] != 7 {
		t.Errorf("statuses of 8 uses: %v", statuses)
	}
	s.recorded(1, audit.UserPasswordReset, who.ID)
}

func TestForgotten_EndedLinkIsRefused(t *testing.T) {
	s := mailing(t)
	who := s.person()
	link := s.forgotten(who)
	form := s.browser().Get(link)
	s.fixture.Exec(`update account.password_resets set expires_at = now() - interval '1 second' where user_id = $1`,
		who.ID)
	s.wants("the link", s.browser().Get(link), 404)
	s.wants("its form", sets(form, newPassword), 404)
}

// The response does not show the limit per account, but that per network. The service is the test's own, because it
// waits for all jobs.
func TestForgotten_RequestsAreLimited(t *testing.T) {
	s := ownMailing(t)
	who := s.person()
	statuses := map[int]int{}
	for range 31 {
		statuses[s.browser().Post(forgottenPage, url.Values{"email": {who.Email}}).Status]++
	}
	sameStatuses(t, "requests", statuses, map[int]int{303: 30, 429: 1})
	s.awaitJobs("mail")
	equal(t, "mails", len(s.box.Messages(who.Email)), 3)
}

func TestForgotten_WithoutMailSaysSo(t *testing.T) {
	s := shared(t)
	b := s.browser()
	for _, page := range []*browsertest.Page{
		b.Get(forgottenPage),
		b.Post(forgottenPage, url.Values{"email": {newAddress()}}),
	} {
		s.wants("the page", page, 200, "sends no mail", "the person who runs this service")
	}
}
