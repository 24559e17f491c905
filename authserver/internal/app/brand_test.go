package app_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// If a deployment sets a brand name, passkeys, logs and mails show it and never the name Almoner.
func TestBrand_NoOtherNameIsShown(t *testing.T) {
	s := ownMailing(t, func(c *app.Config) {
		c.BrandName, c.MailFrom = "Harbour Trust", "Harbour Trust <harbour@example.org>"
	})
	who := s.member(perm.AccountAPIAccess)
	s.fixture.Exec(`insert into account.audit_events (id, tenant_id, actor, action, subject, detail)
		values (gen_random_uuid(), $1, 'system', $2, 'token:x', '{"reason": "replaced"}')`,
		s.fixture.WorkspaceID, audit.TokenRevoked)
	b := s.signedIn(who)
	s.forgotten(who)
	letter := s.mail(who.Email, subjectReset, 1)
	for what, text := range map[string]string{
		"the challenge of a passkey": s.options(b, "/settings/passkeys/options"),
		"the audit log":              b.Get("/settings/audit").Body,
		"the mail as text":           letter.Text,
		"the mail as HTML":           letter.HTML,
	} {
		contains(t, what, text, "Harbour Trust")
		omits(t, what, text, "Almoner")
	}
}
