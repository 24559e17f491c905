package app_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

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

func newAddress() string { return "new-" + uuid.NewString()[:8] + "@example.net" }

// asksFor requests a change of address and returns the response.
func (p post) asksFor(b *browsertest.Browser, email string) *browsertest.Page {
	p.t.Helper()
	return b.Get(emailPath).Send(emailPath, browsertest.Fields{"email": email})
}

// links requests a change of address, and returns the paths of both links.
func (p post) links(who browsertest.Person, b *browsertest.Browser, email string, n int) (old, to string) {
	p.t.Helper()
	if page := p.asksFor(b, email); page.Location() != emailPath || !page.Follow().HasText("We sent a link to both") {
		p.t.Fatalf("%d %s", page.Status, page.Text())
	}
	return p.link(p.mail(who.Email, subjectOldMail, n)), p.link(p.mail(email, subjectNewMail, 1))
}

func (p post) decide(link, decision string) *browsertest.Page {
	p.t.Helper()
	page := p.browser().Get(link)
	if page.Status != 200 {
		return page
	}
	return page.Send("/email", browsertest.Fields{"decision": decision})
}

func (p post) emailOf(user uuid.UUID) (email string) {
	p.t.Helper()
	p.must(p.fixture.Owner.QueryRow(p.t.Context(), `select email from account.users where id = $1`, user).Scan(&email))
	return email
}

// TestP3_AddressChangesAfterBothLinks confirms the links in both orders. Before that it opens them, as mail programs
// do.
func TestP3_AddressChangesAfterBothLinks(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	for name, oldFirst := range map[string]bool{"old first": true, "new first": false} {
		who, email := p.person(), newAddress()
		b := p.signedIn(who)
		reset := p.forgotten(who, 1)
		old, to := p.links(who, b, strings.ToUpper(email), 1)
		first, second := to, old
		if oldFirst {
			first, second = old, to
		}
		for range 2 {
			for _, link := range []string{old, to} {
				if page := p.browser().Get(link); page.Status != 200 || !page.HasText(email) ||
					link == to && page.HasText(who.Email) {
					t.Fatalf("%s: %d %s", name, page.Status, page.Text())
				}
			}
		}
		for range 2 { // a repeated confirmation is no second one
			if page := p.decide(first, "confirm"); page.Status != 200 && !page.HasText("confirmed") ||
				p.emailOf(who.ID) != who.Email {
				t.Errorf("%s: %d %s", name, page.Status, page.Text())
			}
		}
		if page := b.Get(emailPath); !page.HasText("Waiting for confirmation") || !page.HasText(": confirmed") {
			t.Errorf("%s: %s", name, page.Text())
		}
		if page := p.decide(second, "confirm"); !page.HasText("The address was changed") ||
			p.emailOf(who.ID) != email {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
		for _, link := range []string{old, to, reset} {
			if page := p.browser().Get(link); page.Status != 404 {
				t.Errorf("%s: a link afterwards: %d", name, page.Status)
			}
		}
		p.mail(who.Email, subjectChanged, 1)
		p.mail(email, subjectChanged, 1)
		if !inside(b) || p.events(who.ID, audit.UserEmailRequested) != 1 ||
			p.events(who.ID, audit.UserEmailChanged) != 1 {
			t.Errorf("%s: signed out, or events are missing", name)
		}
		p.signedIn(browsertest.Person{ID: who.ID, Email: email})
		if n := p.count(`select count(*) from account.audit_events where detail::text like '%@%'`); n != 0 {
			t.Errorf("%s: the audit log has an address", name)
		}
		for _, link := range []string{old, to} {
			if _, token, _ := strings.Cut(link, "token="); strings.Contains(p.log.String(), token) {
				t.Errorf("%s: the log has the secret of a link", name)
			}
		}
	}
}

func TestP3_EachLinkStopsTheChange(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	b := p.signedIn(who)
	for i, stopWithOld := range []bool{true, false} {
		old, to := p.links(who, b, newAddress(), i+1)
		stops, other := to, old
		if stopWithOld {
			stops, other = old, to
		}
		if page := p.decide(other, "confirm"); page.Status != 200 {
			t.Errorf("%d %s", page.Status, page.Text())
		}
		page := p.decide(stops, "stop")
		if !page.HasText("The change was stopped") || page.HasText("Set a new password") != stopWithOld {
			t.Errorf("%d %s", page.Status, page.Text())
		}
		for _, link := range []string{old, to} {
			if page := p.decide(link, "confirm"); page.Status != 404 {
				t.Errorf("a stopped link: %d %s", page.Status, page.Text())
			}
		}
	}
	replaced, _ := p.links(who, b, newAddress(), 3)
	p.links(who, b, newAddress(), 4)
	ended, _ := p.links(who, b, newAddress(), 5)
	if page := p.decide(replaced, "confirm"); page.Status != 404 {
		t.Errorf("a replaced link: %d", page.Status)
	}
	p.fixture.Exec(`update account.email_changes set expires_at = now() where ended_at is null`)
	if page := p.decide(ended, "confirm"); page.Status != 404 {
		t.Errorf("a link that has ended: %d", page.Status)
	}
	if page := p.asksFor(b, newAddress()); page.Status != 429 || !page.HasText("Too many changes") {
		t.Errorf("the sixth request of a day: %d %s", page.Status, page.Text())
	}
	if p.emailOf(who.ID) != who.Email || p.events(who.ID, audit.UserEmailStopped) != 2 {
		t.Error("the address was changed, or events are missing")
	}
}

// TestP4_ResponseDoesNotTellWhetherAddressIsTaken also checks that the owner of the address gets a mail without a link.
func TestP4_ResponseDoesNotTellWhetherAddressIsTaken(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who, owner := p.person(), p.person()
	b := p.signedIn(who)
	page := p.asksFor(b, owner.Email)
	shown := page.Follow()
	free := newAddress()
	otherPerson := p.person()
	other := p.asksFor(p.signedIn(otherPerson), free)
	if page.Status != other.Status || page.Location() != other.Location() {
		t.Errorf("%d to %s, and %d to %s", page.Status, page.Location(), other.Status, other.Location())
	}
	want := strings.NewReplacer(free, owner.Email, otherPerson.Email, who.Email).Replace(other.Follow().Text())
	if clean(shown.Text()) != clean(want) {
		t.Errorf("a taken address:\n%s\na free one:\n%s", clean(shown.Text()), clean(want))
	}
	old := p.link(p.mail(who.Email, subjectOldMail, 1))
	told := p.mail(owner.Email, subjectTaken, 1)
	if strings.Contains(told.Text, "token=") || strings.Contains(told.Text, who.Email) {
		t.Error(told.Text)
	}
	if page := p.decide(old, "confirm"); !page.HasText("Now open the link that we sent to " + owner.Email) {
		t.Errorf("%d %s", page.Status, page.Text())
	}
	// If the address is taken after the request, the change fails, and the page of the link says so.
	late := newAddress()
	old, to := p.links(who, b, late, 2)
	p.fixture.User(late)
	p.decide(old, "confirm")
	if page := p.decide(to, "confirm"); page.Status != 409 || p.emailOf(who.ID) != who.Email {
		t.Errorf("%d %s", page.Status, page.Text())
	}
}

// clean removes the request id and the minute of a page.
func clean(text string) string {
	text, _, _ = strings.Cut(text, "Request id")
	before, after, _ := strings.Cut(text, ", by ")
	_, after, _ = strings.Cut(after, "UTC.")
	return before + after
}

func TestEmailChange_NeedsFreshSignInAndOneAddress(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	b := p.signedIn(who)
	for _, email := range []string{
		"", "ada", who.Email, strings.ToUpper(who.Email), "a@b.c\r\nBcc: eve@example.org", "a@b.c, d@e.f",
		"Ada <ada@example.org>",
	} {
		if page := p.asksFor(b, email); page.Status != 400 || !page.HasText("Nothing was changed.") {
			t.Errorf("%q: %d %s", email, page.Status, page.Text())
		}
	}
	form := b.Get(emailPath).Form(emailPath)
	form.Set("email", "kept@example.net")
	p.stale()
	page := b.Post(emailPath, form)
	if page.Status != 409 || !page.HasText("confirm your identity first") ||
		!strings.Contains(page.Body, "email%3Dkept%2540example.net") {
		t.Errorf("%d %s", page.Status, page.Body)
	}
	if n := p.count(`select count(*) from account.email_changes`); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// One user's requests do not use up the limit of an address for other users.
func TestEmailChange_LimitOfAddressCountsUsers(t *testing.T) {
	p := serveMail(t)
	email := newAddress()
	first := p.signedIn(p.person())
	for range 3 {
		if page := p.asksFor(first, email); page.Status != 303 {
			t.Fatalf("%d %s", page.Status, page.Text())
		}
	}
	for i, want := range []int{303, 303, 429} {
		if page := p.asksFor(p.signedIn(p.person()), email); page.Status != want {
			t.Errorf("user %d: %d, want %d: %s", i+2, page.Status, want, page.Text())
		}
	}
	if page := p.asksFor(first, email); page.Status != 303 {
		t.Errorf("the first user again: %d %s", page.Status, page.Text())
	}
}

func TestP3_ConcurrentConfirmationsChangeAddressOnce(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	for range 3 {
		who, email := p.person(), newAddress()
		old, to := p.links(who, p.signedIn(who), email, 1)
		var forms []*browsertest.Page
		for _, link := range []string{old, to, old, to} {
			forms = append(forms, p.browser().Get(link))
		}
		var group sync.WaitGroup
		for _, form := range forms {
			group.Go(func() { form.Send("/email", browsertest.Fields{"decision": "confirm"}) })
		}
		group.Wait()
		if p.emailOf(who.ID) != email || p.events(who.ID, audit.UserEmailChanged) != 1 {
			t.Errorf("%s, %d events", p.emailOf(who.ID), p.events(who.ID, audit.UserEmailChanged))
		}
	}
}
