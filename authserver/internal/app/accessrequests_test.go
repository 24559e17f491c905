package app_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The mail of a request has a link to a form with the requested access. Text of the user cannot add a header.
func TestAccessRequest_MailOpensForm(t *testing.T) {
	s := mailing(t)
	boss := s.member(perm.AccountReadMembers, perm.AccountWriteMembers)
	muted, reader := s.member(perm.AccountReadMembers, perm.AccountWriteMembers), s.member(perm.ProgrammesRead)
	eve := newAddress()
	s.fixture.Exec(`insert into account.unwanted_mails (user_id, kind) values ($1, 'access_requested')`, muted.ID)
	s.fixture.Exec(`update account.users set name = $2 where id = $1`, reader.ID, "Sam\r\nBcc: "+eve)
	answer := s.signedIn(reader).Get("/settings/members").Send("/access-requests", nil)
	s.needs("the request", answer, answer.Status, "We asked the administrators")
	m := s.mail(boss.Email, "Request for access to Riverside Food Bank", 1)
	contains(t, "the mail", m.Text, reader.Email, "asks for access")
	omits(t, "the mail", m.Text, "\nBcc:")
	form := s.signedIn(boss).Get(s.link(m)).Form("/settings/members/permissions")
	equal(t, "the form has", strings.Join(form["permissions"], " "), "programmes:read:programmes account:read:members")
	equal(t, "mails to others", len(s.box.Messages(muted.Email))+len(s.box.Messages(eve)), 0)
}
