package api_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

const usagePath = "/usage"

// used adds requests of a member's credential, and returns the credential's id. ago is in days.
func (b *testEnv) used(user uuid.UUID, kind, operation string, ago int) string {
	b.t.Helper()
	credential := uuid.New()
	b.Fixture.Exec(`insert into account.usage (tenant_id, credential_id, day, operation, kind, user_id, requests,
			refused, records) values ($1, $2, $3, $4, $5, $6, 7, 2, 30)`,
		b.Fixture.WorkspaceID, credential, b.day(ago), operation, kind, user)
	return credential.String()
}

// day returns the day some days ago.
func (b *testEnv) day(ago int) string { return b.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly) }

func TestUsage_IsListedByDayAndOperation(t *testing.T) {
	b := newTestEnv(t)
	developer := b.Fixture.Member(perm.AccountAPIAccess, perm.ProgrammesRead)
	service, _ := b.Fixture.Confidential()
	// No row is of today, since the requests of this test count today.
	own := b.used(developer, "personal_access_token", "listProgrammes", 1)
	other := b.used(b.manager, "connection", "list_programmes", 2)
	old := b.used(b.manager, "connection", "list_programmes", 31)
	older := b.used(b.manager, "connection", "list_programmes", 93)
	b.Fixture.Exec(`insert into account.usage (tenant_id, credential_id, day, operation, service_id, kind, user_id,
			requests) select tenant_id, credential_id, day, 'introspectToken', $2, kind, user_id, 3
		from account.usage where credential_id = $1`, own, service.ID)
	until := "?to=" + b.day(1)
	for query, want := range map[string][]string{
		until:                               {own, own, other},
		until + "&from=" + b.day(31):        {own, own, other, old},
		until + "&from=" + b.day(93):        {own, own, other, old, older},
		"?to=" + b.day(2):                   {other, old},
		"?to=" + b.day(93):                  {older},
		"?credentialId=" + other:            {other},
		"?credentialId=" + uuid.NewString(): nil,
	} {
		_, ids, _ := b.listed(usagePath+query, "credentialId")
		if slices.Sort(ids); !slices.Equal(ids, sorted(want)) {
			t.Errorf("usage%s: %v, want %v", query, ids, want)
		}
	}
	rows, _, _ := b.listed(usagePath+"?credentialId="+own, "day")
	for i, want := range []map[string]any{
		{"operation": "listProgrammes", "requests": 7., "refused": 2., "records": 30., "service": nil},
		{"operation": "introspectToken", "requests": 3., "refused": 0., "records": 0., "service": service.Name},
	} {
		want["kind"], want["day"], want["credentialId"] = "personal_access_token", b.day(1), own
		for name, value := range want {
			if rows[i][name] != value {
				t.Errorf("row %d: %s is %v, want %v", i, name, rows[i][name], value)
			}
		}
	}
	for _, bad := range []string{
		"?credentialId=x", "?from=yesterday", "?to=2026-02-30", "?from=2026-01-02&to=2026-01-01",
		"?from=2026-01-01&to=2026-04-04", "?limit=0", "?cursor=x", "?fields=user",
	} {
		b.Wants(bad, b.send("GET", usagePath+bad, ""), 400, "invalid_request")
	}
	b.token = b.Fixture.Token(developer, perm.AccountAPIAccess)
	all := usagePath + until + "&from=" + b.day(93)
	if _, ids, _ := b.listed(all, "credentialId"); !slices.Equal(ids, []string{own, own}) {
		t.Errorf("a member without account:read:members lists %v", ids)
	}
	if _, ids, _ := b.listed(usagePath+"?credentialId="+other, "credentialId"); len(ids) > 0 {
		t.Errorf("a member without account:read:members lists another's %v", ids)
	}
}

func sorted(all []string) []string {
	slices.Sort(all)
	return all
}

// Each page continues where the last one ended.
func TestUsage_PagesContinue(t *testing.T) {
	b := newTestEnv(t)
	var want, all []string
	for range 2 {
		want = append(want, b.used(b.manager, "connection", "list_programmes", 1),
			b.used(b.manager, "connection", "whoami", 2))
	}
	for at := ""; ; {
		_, ids, next := b.listed(usagePath+"?limit=1&to="+b.day(1)+at, "credentialId")
		if all = append(all, ids...); next == "" {
			break
		}
		at = "&cursor=" + next
		b.Wants("a cursor of other days", b.send("GET", usagePath+"?to=2026-01-01"+at, ""), 400, "invalid_request")
	}
	if !slices.Equal(sorted(all), sorted(want)) {
		t.Errorf("%v, want %v", all, want)
	}
}
