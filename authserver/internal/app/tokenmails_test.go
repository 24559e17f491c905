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
func (s *site) token(who browsertest.Person, name string, age, left time.Duration) {
	s.t.Helper()
	s.fixture.Exec(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions,
		created_at, expires_at) values ($1::uuid, sha256($1::uuid::text::bytea), $2, $3, $4, '{}', now() - $5::interval,
		now() + $6::interval)`, uuid.New(), who.ID, s.fixture.WorkspaceID, name, age, left)
}

// Tokens of 90, 30 and 7 days, and tokens whose owner gets no mail. The service is the test's own, because it waits for
// all jobs.
func TestTokens_ExpiryIsMailedOnce(t *testing.T) {
	s := ownMailing(t)
	await.True(t, "the job runs at the start", func() bool {
		return read[int](s, `select count(*) from account_jobs.river_job
			where kind = 'periodic' and state = 'completed'`) > 0
	})
	const day = 24 * time.Hour
	who, quiet, disabled := s.person(), s.person(), s.person()
	s.fixture.Exec(`insert into account.unwanted_mails values ($1, 'token_expiring')`, quiet.ID)
	s.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled.ID)
	s.token(who, "ninety in a week", 83*day, 7*day-time.Minute)
	s.token(who, "thirty in two days", 28*day, 2*day)
	s.token(who, "seven in a day", 6*day, day-time.Minute)
	s.token(who, "ninety in eight days", 82*day, 8*day)
	s.token(who, "seven is new", 0, 7*day)
	s.token(who, "seven in two days", 5*day, 2*day)
	s.token(who, "expired", 30*day, -time.Minute)
	s.token(who, "revoked", 28*day, 2*day)
	s.fixture.Exec(`update account.personal_access_tokens set revoked_at = now() where name = 'revoked'`)
	s.token(quiet, "quiet", 28*day, 2*day)
	s.token(disabled, "disabled", 28*day, 2*day)
	for range 2 {
		s.fixture.Exec(`insert into account_jobs.river_job (kind, args, max_attempts, queue)
			values ('periodic', '{}', 3, 'periodic')`)
		s.awaitJobs("periodic")
	}
	const subject = "A personal access token is about to expire"
	s.mail(who.Email, subject, 3)
	s.awaitJobs("mail")
	var told strings.Builder
	for _, m := range s.letters("", subject) {
		told.WriteString(m.Text)
	}
	for _, name := range []string{"ninety in a week", "thirty in two days", "seven in a day"} {
		equal(t, "mails about "+name, strings.Count(told.String(), "token "+name), 1)
	}
	equal(t, "mails", len(s.letters("", subject)), 3)
	equal(t, "mails that name the workspace", strings.Count(told.String(), "Riverside Food Bank"), 3)
}
