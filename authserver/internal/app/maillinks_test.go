package app_test

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
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

// F2, F3, F4, F8. Earlier links end with the first use.
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
	s.needs("a good password", done, 303, "/settings/user")
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

// F8. The new password does not replace the second factor.
func TestForgotten_ResetAsksForCode(t *testing.T) {
	s := mailing(t)
	who := s.person()
	const appPage = "/settings/security/authenticator"
	own := s.signedIn(who)
	setUp(t, own, appPage)
	codes := codesOn(own.Get(appPage).Send(appPage+"/codes", browsertest.Fields{}))
	browser := s.browser()
	form := browser.Get(s.forgotten(who)).Lacks("is signed in here")
	asked := sets(form, newPassword)
	s.needs("the reset", asked, 200, "Your new password is set", "Your account also needs a code")
	equal(t, "signed in before the code", inside(browser), false)
	s.needs("a recovery code", asked.Send("/login/code", browsertest.Fields{"code": codes[0]}), 303, "/settings/user")
	equal(t, "signed in", inside(browser), true)
}

// The page says first whose sign-in at the browser a new password ends.
func TestForgotten_ResetSaysWhoIsSignedOut(t *testing.T) {
	s := mailing(t)
	who, other := s.person(), s.person()
	s.signedIn(who).Get(s.forgotten(who)).Lacks("is signed in here")
	browser := s.signedIn(other)
	const ends = "is signed in here. When you set the password, this browser signs out that account"
	form := browser.Get(s.forgotten(who))
	s.needs("the link", form, 200, other.Email, ends)
	s.needs("a short password", sets(form, "short"), 400, ends)
	s.needs("the page after it", sets(form, newPassword).Follow(), 200, who.Email)
	s.lacks("the page afterwards", browser.Get("/settings/user"), other.Email)
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
	s.wants("the page of a link by mail", form, 200, "Your passkeys stay").Lacks("Remove my passkeys")
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
		s.wants("the page", page, 200, "sends no e-mail", "the person who runs this service")
	}
}

const (
	emailPath      = "/settings/user/email"
	subjectOldMail = "Confirm the change of your e-mail address"
	subjectNewMail = "Confirm your new e-mail address"
	subjectTaken   = "Your address was entered for another account"
	subjectChanged = "Your e-mail address was changed"
)

// asksFor requests a change of address and returns the response.
func (s *site) asksFor(b *browsertest.Browser, email string) *browsertest.Page {
	s.t.Helper()
	return b.Get(emailPath).Send(emailPath, browsertest.Fields{"email": email})
}

// links requests a change of address, and returns the paths of both links.
func (s *site) links(who browsertest.Person, b *browsertest.Browser, email string, n int) (old, to string) {
	s.t.Helper()
	page := s.asksFor(b, email)
	s.needs("the request", page, 303, emailPath)
	s.needs("the page after it", page.Follow(), 200, "We sent a link to both")
	return s.link(s.mail(who.Email, subjectOldMail, n)), s.link(s.mail(email, subjectNewMail, 1))
}

func (s *site) decide(link, decision string) *browsertest.Page {
	s.t.Helper()
	page := s.browser().Get(link)
	if page.Status != 200 {
		return page
	}
	return page.Send("/email", browsertest.Fields{"decision": decision})
}

// keeps requires the address of a user.
func (s *site) keeps(who browsertest.Person, email string) {
	s.t.Helper()
	equal(s.t, "the address", read[string](s, `select email from account.users where id = $1`, who.ID), email)
}

// Before the links are confirmed, in both orders, they are opened, as mail programs do.
func TestP3_AddressChangesAfterBothLinks(t *testing.T) {
	t.Parallel()
	for name, oldFirst := range map[string]bool{"old first": true, "new first": false} {
		t.Run(name, func(t *testing.T) {
			s := mailing(t)
			who, email := s.person(), newAddress()
			b := s.signedIn(who)
			reset := s.forgotten(who)
			old, to := s.links(who, b, strings.ToUpper(email), 1)
			for range 2 {
				s.wants("the link to the old address", s.browser().Get(old), 200, email)
				s.wants("the link to the new address", s.browser().Get(to), 200, email).Lacks(who.Email)
			}
			first, second := to, old
			if oldFirst {
				first, second = old, to
			}
			s.wants("the first confirmation", s.decide(first, "confirm"), 200)
			s.wants("the same confirmation again", s.decide(first, "confirm"), 200, "confirmed")
			s.keeps(who, who.Email)
			s.wants("the page", b.Get(emailPath), 200, "Waiting for confirmation", ": confirmed")
			s.wants("the second confirmation", s.decide(second, "confirm"), 200, "The address was changed")
			s.keeps(who, email)
			for _, link := range []string{old, to, reset} {
				s.wants("a link afterwards", s.browser().Get(link), 404)
			}
			s.mail(who.Email, subjectChanged, 1)
			s.mail(email, subjectChanged, 1)
			equal(t, "signed in", inside(b), true)
			s.recorded(1, audit.UserEmailRequested, who.ID)
			s.recorded(1, audit.UserEmailChanged, who.ID)
			s.signedIn(browsertest.Person{ID: who.ID, Email: email})
			s.rows(0, "audit_events", "user_id = $1 and detail::text like '%@%'", who.ID)
			omits(t, "the log", s.log.String(), tokenOf(old), tokenOf(to))
		})
	}
}

func TestP3_EachLinkStopsTheChange(t *testing.T) {
	s := mailing(t)
	who := s.person()
	b := s.signedIn(who)
	for i, stopWithOld := range []bool{true, false} {
		old, to := s.links(who, b, newAddress(), i+1)
		stops, other := to, old
		if stopWithOld {
			stops, other = old, to
		}
		s.wants("the other link", s.decide(other, "confirm"), 200)
		page := s.wants("stopping", s.decide(stops, "stop"), 200, "The change was stopped")
		equal(t, "offers a new password", page.HasText("Set a new password"), stopWithOld)
		s.wants("a stopped link", s.decide(old, "confirm"), 404)
		s.wants("a stopped link", s.decide(to, "confirm"), 404)
	}
	replaced, _ := s.links(who, b, newAddress(), 3)
	s.links(who, b, newAddress(), 4)
	ended, _ := s.links(who, b, newAddress(), 5)
	s.wants("a replaced link", s.decide(replaced, "confirm"), 404)
	s.fixture.Exec(`update account.email_changes set expires_at = now() where ended_at is null and user_id = $1`,
		who.ID)
	s.wants("a link that has ended", s.decide(ended, "confirm"), 404)
	s.wants("the sixth request of a day", s.asksFor(b, newAddress()), 429, "Too many changes")
	s.keeps(who, who.Email)
	s.recorded(2, audit.UserEmailStopped, who.ID)
}

// The owner of a taken address gets a mail without a link.
func TestP4_ResponseDoesNotTellWhetherAddressIsTaken(t *testing.T) {
	s := mailing(t)
	who, owner, another, free := s.person(), s.person(), s.person(), newAddress()
	b := s.signedIn(who)
	page, other := s.asksFor(b, owner.Email), s.asksFor(s.signedIn(another), free)
	equal(t, "the statuses", page.Status, other.Status)
	equal(t, "the locations", page.Location(), other.Location())
	same := strings.NewReplacer(free, owner.Email, another.Email, who.Email)
	equal(t, "the pages", clean(page.Follow().Text()), clean(same.Replace(other.Follow().Text())))
	old := s.link(s.mail(who.Email, subjectOldMail, 1))
	omits(t, "the mail to the owner", s.mail(owner.Email, subjectTaken, 1).Text, "token=", who.Email)
	s.wants("the old link", s.decide(old, "confirm"), 200, "Now open the link that we sent to "+owner.Email)
	// If the address is taken after the request, the change fails, and the page of the link says so.
	late := newAddress()
	old, to := s.links(who, b, late, 2)
	s.fixture.User(late)
	s.decide(old, "confirm")
	s.wants("an address that was taken later", s.decide(to, "confirm"), 409)
	s.keeps(who, who.Email)
}

// clean removes the request id and the minute of a page.
func clean(text string) string {
	text, _, _ = strings.Cut(text, "Request id")
	before, after, _ := strings.Cut(text, ", by ")
	_, after, _ = strings.Cut(after, "UTC.")
	return before + after
}

func TestEmailChange_NeedsFreshSignInAndOneAddress(t *testing.T) {
	s := mailing(t)
	who := s.person()
	b := s.signedIn(who)
	for _, email := range []string{
		"", "ada", who.Email, strings.ToUpper(who.Email), "a@b.c\r\nBcc: eve@example.org", "a@b.c, d@e.f",
		"Ada <ada@example.org>",
	} {
		s.wants(email, s.asksFor(b, email), 400, "Nothing was changed.").Contains("<title>Error: ")
	}
	form := b.Get(emailPath).Form(emailPath)
	form.Set("email", "kept@example.net")
	s.stale()
	s.wants("without a fresh sign-in", b.Post(emailPath, form), 409, "confirm your identity first").
		Contains("email%3Dkept%2540example.net")
	s.rows(0, "email_changes", "user_id = $1", who.ID)
}

// One user's requests do not use up the limit of an address for other users.
func TestEmailChange_LimitOfAddressCountsUsers(t *testing.T) {
	s := mailing(t)
	email := newAddress()
	first := s.signedIn(s.person())
	for range 3 {
		s.needs("the first user", s.asksFor(first, email), 303)
	}
	for _, want := range []int{303, 303, 429} {
		s.wants("another user", s.asksFor(s.signedIn(s.person()), email), want)
	}
	s.wants("the first user again", s.asksFor(first, email), 303)
}

func TestP3_ConcurrentConfirmationsChangeAddressOnce(t *testing.T) {
	s := mailing(t)
	for range 3 {
		who, email := s.person(), newAddress()
		old, to := s.links(who, s.signedIn(who), email, 1)
		var forms []*browsertest.Page
		for _, link := range []string{old, to, old, to} {
			forms = append(forms, s.browser().Get(link))
		}
		atOnce(4, func(i int) *browsertest.Page {
			return forms[i].Send("/email", browsertest.Fields{"decision": "confirm"})
		})
		s.keeps(who, email)
		s.recorded(1, audit.UserEmailChanged, who.ID)
	}
}
