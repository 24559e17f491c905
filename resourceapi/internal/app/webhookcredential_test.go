package app

import (
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// An endpoint that a credential added is disabled before the next delivery after the credential has ended. One that was
// added on the page goes on.
func TestW9_EndpointEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	held := []perm.Permission{perm.AccountAPIAccess, perm.ProgrammesRead}
	const token, grant = "personal_access_tokens", "grants"
	for name, end := range map[string]struct{ table, set string }{
		"a revoked token":  {token, "revoked_at = now(), revoke_reason = 'user'"},
		"a replaced token": {token, "revoked_at = now(), revoke_reason = 'replaced'"},
		"an expired token": {token, "created_at = now() - interval '2 days', expires_at = now() - interval '1 day'"},
		"a revoked grant":  {grant, "state = 'revoked', revoked_at = now(), revoke_reason = 'user'"},
		"an expired grant": {grant, "ends_at = now() - interval '1 second'"},
		"a narrowed token": {token, "permissions = '{account:api:access}'"},
		"an active token":  {token, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t, nil)
			s := newWorker(t)
			workspaceID, h := s.developer()
			user := s.User()
			s.Member(workspaceID, user, held...)
			secret := s.PAT(workspaceID, user, held...).Reveal()
			key, id := "hash", any(credential.Hash(secret))
			if end.table == grant {
				g := s.Grant(standing.Confidential, workspaceID, user, resource, held...)
				secret, key, id = s.token(claims(g)), "id", g.ID
			}
			made := s.addWebhook(as(secret, workspaceID).json(), r.URL+"/token", "programme.created")
			page := s.addWebhook(h, r.URL+"/page", "programme.created")
			s.Exec(`update account.webhooks set token_id = null, grant_id = null where id = $1`, page.ID)
			at := func(path string) (n int) {
				for _, one := range r.all() {
					if one.Path == path {
						n++
					}
				}
				return n
			}
			s.create(h, `{"name":"One"}`)
			within(t, "the first event at both", func() bool { return at("/token") == 1 && at("/page") == 1 })
			if end.set != "" {
				s.Exec(`update account.`+end.table+` set `+end.set+` where `+key+` = $1`, id)
			}
			s.create(h, `{"name":"Two"}`)
			within(t, "the second event at the page's", func() bool { return at("/page") == 2 })
			switch name {
			case "an active token":
				within(t, "the second event", func() bool { return at("/token") == 2 })
			case "a narrowed token":
				within(t, "the second event is skipped", func() bool {
					return s.Count(`select count(distinct position) from account.webhooks where {mine}`) == 1
				})
			default:
				var now webhookRecord
				within(t, "disabled", func() bool {
					s.get(webhooksPath+"/"+made.ID, h).decode(t, &now)
					return now.DisabledReason == "permission"
				})
			}
			want := 1
			if end.set == "" {
				want = 2
			}
			if n := at("/token"); n != want {
				t.Errorf("%d deliveries, want %d", n, want)
			}
		})
	}
}

// An endpoint that is enabled with a credential ends with that credential, unless the same user added it on the page.
func TestW9_EnablingBindsToCredential(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.developer()
	made := s.addWebhook(h, "https://hooks.example.invalid/", "programme.created")
	path := webhooksPath + "/" + made.ID
	const bound = `select count(*) from account.webhooks w join account.personal_access_tokens p
		on p.id = w.token_id and p.user_id = w.user_id where w.{mine} and w.grant_id is null and w.added_mail_due`
	if s.Count(bound) != 1 {
		t.Error("the endpoint does not know its token")
	}
	s.Exec(`update account.webhooks set token_id = null where {mine}`)
	s.do("PATCH", path, h, `{"enabled":true}`).wants(t, 200)
	if s.Count(bound) != 0 {
		t.Error("a token took over an endpoint of the page")
	}
	others := s.holder(workspaceID, perm.AccountAPIAccess, perm.ProgrammesRead)
	s.do("PATCH", path, others, `{"enabled":true}`).wants(t, 200)
	if s.Count(bound) != 1 {
		t.Error("another user's token does not end the endpoint")
	}
}
