package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// token creates a personal access token, from how long ago and until when.
func (p post) token(who browsertest.Person, name string, age, left time.Duration) {
	p.t.Helper()
	p.fixture.Exec(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions,
		created_at, expires_at) values ($1::uuid, sha256($1::uuid::text::bytea), $2, $3, $4, '{}', now() - $5::interval,
		now() + $6::interval)`, uuid.New(), who.ID, p.fixture.WorkspaceID, name, age, left)
}

// jobs counts the jobs of a kind that are not completed.
func (p post) jobs(kind string) int {
	p.t.Helper()
	return p.count(`select count(*) from account_jobs.river_job where kind = $1 and state <> 'completed'`, kind)
}

// periodic makes the worker look for what is due, and waits until it has.
func (p post) periodic() {
	p.t.Helper()
	p.fixture.Exec(`insert into account_jobs.river_job (kind, args, max_attempts, queue)
		values ('periodic', '{}', 3, 'periodic')`)
	await.True(p.t, "the periodic jobs ran", func() bool { return p.jobs("periodic") == 0 })
}

// TestTokens_ExpiryIsMailedOnce covers tokens of 90, 30 and 7 days, and tokens whose owner gets no mail.
func TestTokens_ExpiryIsMailedOnce(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	await.True(t, "the job runs at the start", func() bool {
		return p.count(`select count(*) from account_jobs.river_job
			where kind = 'periodic' and state = 'completed'`) > 0
	})
	const day = 24 * time.Hour
	who, quiet, disabled := p.person(), p.person(), p.person()
	p.fixture.Exec(`insert into account.unwanted_mails values ($1, 'token_expiring')`, quiet.ID)
	p.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled.ID)
	p.token(who, "ninety in a week", 83*day, 7*day-time.Minute)
	p.token(who, "thirty in two days", 28*day, 2*day)
	p.token(who, "seven in a day", 6*day, day-time.Minute)
	p.token(who, "ninety in eight days", 82*day, 8*day)
	p.token(who, "seven is new", 0, 7*day)
	p.token(who, "seven in two days", 5*day, 2*day)
	p.token(who, "expired", 30*day, -time.Minute)
	p.token(who, "revoked", 28*day, 2*day)
	p.fixture.Exec(`update account.personal_access_tokens set revoked_at = now() where name = 'revoked'`)
	p.token(quiet, "quiet", 28*day, 2*day)
	p.token(disabled, "disabled", 28*day, 2*day)
	for range 2 {
		p.periodic()
	}
	const subject = "A personal access token is about to expire"
	p.mail(who.Email, subject, 3)
	await.True(t, "no mail waits", func() bool { return p.jobs("mail") == 0 })
	var told []string
	for _, m := range p.box.Messages("") {
		if m.Subject == subject {
			told = append(told, m.Text)
		}
	}
	for _, name := range []string{"ninety in a week", "thirty in two days", "seven in a day"} {
		n := 0
		for _, text := range told {
			if strings.Contains(text, name) && strings.Contains(text, "Riverside Food Bank") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d mails about %q", n, name)
		}
	}
	if len(told) != 3 {
		t.Errorf("%d mails: %q", len(told), told)
	}
}
