package app_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The mail of a request has a link to a form with the requested access. Text of the user cannot add a header.
func TestAccessRequest_MailOpensForm(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	boss, reader, muted := p.person(), p.person(), p.person()
	for _, who := range []browsertest.Person{boss, muted} {
		p.fixture.Join(p.fixture.WorkspaceID, who.ID, perm.AccountReadMembers, perm.AccountWriteMembers)
	}
	p.fixture.Join(p.fixture.WorkspaceID, reader.ID, perm.ProgrammesRead)
	p.fixture.Exec(`insert into account.unwanted_mails (user_id, kind) values ($1, 'access_requested')`, muted.ID)
	p.fixture.Exec(`update account.users set name = E'Sam\r\nBcc: eve@example.org' where id = $1`, reader.ID)
	page := p.signedIn(reader).Get("/settings/members")
	if answer := page.Send("/access-requests", nil); !answer.HasText("We asked the administrators") {
		t.Fatalf("%d %s", answer.Status, answer.Text())
	}
	m := p.mail(boss.Email, "Request for access to Riverside Food Bank", 1)
	if !strings.Contains(m.Text, reader.Email) || !strings.Contains(m.Text, "asks for access") ||
		strings.Contains(m.Text, "\nBcc:") {
		t.Errorf("the mail says %q", m.Text)
	}
	form := p.signedIn(boss).Get(p.link(m)).Form("/settings/members/permissions")
	if got := strings.Join(form["permissions"], " "); got != "programmes:read:programmes account:read:members" {
		t.Errorf("the form has %q", got)
	}
	if n := len(p.box.Messages(muted.Email)) + len(p.box.Messages("eve@example.org")); n != 0 {
		t.Errorf("%d mails to others", n)
	}
}
