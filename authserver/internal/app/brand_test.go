package app_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
)

// If a deployment sets a brand name, passkeys, logs and mails show it and never the name Almoner.
func TestBrand_NoOtherNameIsShown(t *testing.T) {
	box, err := mailbox.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(box.Close)
	p := post{box: box, site: serve(t, func(c *app.Config) {
		withPasskeys(c)
		c.BrandName = "Harbour Trust"
		c.SMTPURL, c.MailFrom = credential.Secret(box.URL()), "Harbour Trust <harbour@example.org>"
	})}
	who := p.person()
	p.fixture.Join(p.fixture.WorkspaceID, who.ID, perm.AccountAPIAccess)
	p.fixture.Exec(`insert into account.audit_events (id, tenant_id, actor, action, subject, detail)
		values (gen_random_uuid(), $1, 'system', $2, 'token:x', '{"reason": "replaced"}')`,
		p.fixture.WorkspaceID, audit.TokenRevoked)
	b := p.signedIn(who)
	p.forgotten(who, 1)
	letter := p.mail(who.Email, "Set a new password", 1)
	for what, text := range map[string]string{
		"the challenge of a passkey": options(t, b, "/settings/passkeys/options"),
		"the audit log":              b.Get("/settings/audit").Body,
		"the mail as text":           letter.Text,
		"the mail as HTML":           letter.HTML,
	} {
		if !strings.Contains(text, "Harbour Trust") || strings.Contains(text, "Almoner") {
			t.Errorf("%s: %s", what, text)
		}
	}
}
