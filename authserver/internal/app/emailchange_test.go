package app_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

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
				page := s.browser().Get(to)
				s.wants("the link to the new address", page, 200, email)
				s.lacks("the link to the new address", page, who.Email)
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
		page := s.decide(stops, "stop")
		s.wants("stopping", page, 200, "The change was stopped")
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
		s.wants(email, s.asksFor(b, email), 400, "Nothing was changed.")
	}
	form := b.Get(emailPath).Form(emailPath)
	form.Set("email", "kept@example.net")
	s.stale()
	page := b.Post(emailPath, form)
	s.wants("without a fresh sign-in", page, 409, "confirm your identity first")
	contains(t, "the page", page.Body, "email%3Dkept%2540example.net")
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
