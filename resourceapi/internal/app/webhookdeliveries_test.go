package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/devkit/await"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
)

func TestDeliveries_AreSignedAndInOrder(t *testing.T) {
	r := newReceiver(t, nil)
	s := newWorker(t)
	h := s.developer()
	s.create(h, `{"name":"Before the endpoint"}`)
	made := s.addWebhook(h, r.URL+"/hook?key=1", "programme.created", "programme.updated")
	programme := s.create(h, `{"name":"Spring pantry"}`)
	path := listPath + "/" + programme.ID.String()
	for i := range 5 {
		s.do("PATCH", path, h, fmt.Sprintf(`{"summary":"Version %d"}`, i)).wants(t, 200)
	}
	s.do("DELETE", path, h, "").wants(t, 204) // of another type
	s.create(h, `{"name":"Summer pantry"}`)
	await.True(t, "seven deliveries", func() bool { return len(r.all()) == 7 })
	var last int64
	for i, got := range r.all() {
		want := "programme.updated"
		if i == 0 || i == 6 {
			want = "programme.created"
		}
		if !got.signedWith(t, made.Secret) || got.Event.Type != want || got.Event.Sequence <= last ||
			got.Event.WorkspaceID != h.workspace().String() || got.Event.Timestamp.IsZero() ||
			strings.Contains(got.Body, "pantry") || strings.Contains(got.Body, "Version") ||
			got.ID != fmt.Sprintf("evt_%s_%d", h.workspace(), got.Event.Sequence) ||
			got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%d: %s %s", i, got.ID, got.Body)
		}
		last = got.Event.Sequence
	}
	var data struct {
		ID      uuid.UUID
		Changed []string
	}
	must(t, json.Unmarshal(r.all()[1].Event.Data, &data))
	if data.ID != programme.ID || !slices.Equal(data.Changed, []string{"summary"}) {
		t.Errorf("%+v", data)
	}
	await.True(t, "the log", func() bool {
		a := s.get(made.path()+"/deliveries", h)
		return a.Status == 200 && strings.Count(a.Body, `"state":"accepted"`) == 7 &&
			strings.Count(a.Body, `"status":204`) == 7
	})
	s.logLacks("whsec_", "key=1")
}

func TestDeliveries_RetriesHaveSameID(t *testing.T) {
	var status atomic.Int32
	status.Store(500)
	r := newReceiver(t, func(received) int { return int(status.Load()) })
	s := newWorker(t)
	h := s.developer()
	made := s.addWebhook(h, r.URL, "programme.created")
	s.create(h, `{"name":"One"}`)
	s.create(h, `{"name":"Two"}`)
	await.True(t, "an attempt", func() bool { return len(r.all()) == 1 })
	status.Store(302)
	await.True(t, "the state", s.failures(1))
	s.wantsRows(1, "account.webhooks", `next_try_at > now() + interval '2 s'
		and next_try_at < now() + interval '6 s'`)
	s.retryNow()
	await.True(t, "another attempt", func() bool { return len(r.all()) == 2 })
	await.True(t, "the state", s.failures(2))
	status.Store(http.StatusServiceUnavailable) // with a Retry-After of 600 s
	s.retryNow()
	await.True(t, "the state", s.failures(3))
	s.wantsRows(1, "account.webhooks", `next_try_at > now() + interval '590 s'
		and next_try_at < now() + interval '610 s'`)
	status.Store(200)
	s.retryNow()
	await.True(t, "both events", func() bool { return len(r.all()) == 5 })
	all := r.all()
	var ids []string
	for _, one := range all {
		ids = append(ids, one.ID)
	}
	if all[3].ID == all[4].ID || !slices.Equal(ids[:4], slices.Repeat(ids[:1], 4)) || all[0].Body != all[3].Body {
		t.Errorf("%q", ids)
	}
	await.True(t, "the state", func() bool {
		return s.rows("account.webhooks", "failures = 0 and failing_since is null") == 1
	})
	a := s.get(made.path()+"/deliveries", h)
	for _, problem := range []string{"status 500.", "status 302. Redirects are not followed."} {
		if strings.Count(a.Body, problem) != 1 {
			t.Errorf("%q: %s", problem, a.Body)
		}
	}
}

func TestDeliveries_EndpointIsDisabled(t *testing.T) {
	r := newReceiver(t, func(got received) int {
		if got.Event.Type == "form.created" {
			return http.StatusGone
		}
		return http.StatusInternalServerError
	})
	s := newWorker(t)
	h := s.developer()
	failing, gone := s.addWebhook(h, r.URL, "programme.created"), s.addWebhook(h, r.URL, "form.created")
	s.do("POST", formsPath, h, ideaForm).wants(t, 201)
	s.disabled(gone, h, "gone")
	s.create(h, `{"name":"One"}`)
	await.True(t, "a failure", s.failures(1))
	s.Exec("update account.webhooks set failing_since = now() - interval '71 hours 59 minutes' where {mine}")
	s.retryNow()
	await.True(t, "a failure", s.failures(2))
	s.wantsRows(1, "account.webhooks", `failures = 2 and enabled
		and next_try_at between now() and now() + interval '1 minute'`) // the last attempt is after three days
	s.Exec("update account.webhooks set failing_since = now() - interval '72 hours' where {mine}")
	s.retryNow()
	s.disabled(failing, h, "failing") // after three days
	s.wantsRows(2, "account.webhooks", "mail_due")
	s.wantsRows(2, "account.audit_events", `action = 'webhook.disabled'
		and actor = 'system' and detail ->> 'reason' in ('gone', 'failing')`)
	before := len(r.all())
	s.addWebhook(h, r.URL, "programme.created")
	s.create(h, `{"name":"Two"}`)
	await.True(t, "a failure of the enabled endpoint", s.failures(1))
	s.retryNow() // a disabled endpoint that is due would get the event by then
	await.True(t, "another delivery to the enabled endpoint", func() bool { return len(r.all()) >= before+2 })
	if got := len(r.all()); got != before+2 {
		t.Errorf("%d deliveries to disabled endpoints", got-before-2)
	}
}

func TestDeliveries_OnlyEventsThatUserMayRead(t *testing.T) {
	r := newReceiver(t, nil)
	s := newWorker(t)
	h := s.developer()
	user := s.User()
	held := []perm.Permission{perm.AccountAPIAccess, perm.ProgrammesRead, perm.AccountReadMembers}
	s.Member(h.workspace(), user, held...)
	credential := s.holding(h.workspace(), user, held...)
	made := s.addWebhook(credential, r.URL, "programme.created", "member.updated")
	all := newReceiver(t, nil) // gets all that the user may read
	s.Exec("update account.webhooks set all_types = true where id = $1", s.addWebhook(credential, all.URL,
		"connection.ended").ID)
	s.create(h, `{"name":"One"}`)
	await.True(t, "a delivery", func() bool { return slices.Equal(r.types(), []string{"programme.created"}) })
	s.Member(h.workspace(), user, perm.AccountAPIAccess, perm.AccountReadMembers)
	s.create(h, `{"name":"Two"}`)
	await.True(t, "the change of the member", func() bool {
		return slices.Equal(r.types(), []string{"programme.created", "member.updated"})
	})
	await.True(t, "the second programme is skipped", func() bool {
		return s.Count(`select count(*) from account.webhooks where {mine} and position >=
			(select max(sequence) from account.events
				where {mine} and type = 'programme.created' having count(sequence) = 2)`) == 2
	})
	s.Member(h.workspace(), user, held...)
	await.True(t, "the second change of the member", func() bool { return len(r.all()) == 3 && len(all.all()) == 3 })
	s.RemoveMember(h.workspace(), user)
	s.create(h, `{"name":"Three"}`)
	s.disabled(made, h, "permission")
	if got := r.types(); !slices.Equal(got, []string{"programme.created", "member.updated", "member.updated"}) {
		t.Errorf("%q", got)
	}
	if got := all.types(); !slices.Equal(got, r.types()) {
		t.Errorf("the endpoint for all events got %q", got)
	}
	s.wantsRows(0, "account.webhooks", "mail_due")
	// After a member enables it again, the permissions of that member apply.
	s.do("PATCH", made.path(), h, `{"enabled":true}`).wants(t, 200)
	await.True(t, "the missed event", func() bool { return len(r.all()) == 4 && r.types()[3] == "programme.created" })
}

func TestDeliveries_TestAndResend(t *testing.T) {
	r := newReceiver(t, nil)
	s := newWorker(t)
	h := s.developer()
	made := s.addWebhook(h, r.URL+"/echo", "programme.created")
	path := made.path()
	s.create(h, `{"name":"One"}`)
	await.True(t, "a delivery", func() bool { return len(r.all()) == 1 })
	await.True(t, "the log", func() bool {
		return strings.Count(s.get(path+"/deliveries", h).Body, `"state":"accepted"`) == 1
	})
	log := pageOf[struct {
		ID, WebhookID string
		Response      *string
		DurationMs    *int
	}](s, path+"/deliveries", h)
	if sent, logged := r.all()[0], log.Data[0]; logged.WebhookID != sent.ID || logged.DurationMs == nil ||
		logged.Response == nil || *logged.Response != sent.Body {
		t.Errorf("%+v", log.Data)
	}
	s.Wants(1, `select count(*) from account.webhook_deliveries where webhook_id = $1 and signature = $2
		and extract(epoch from date_trunc('second', sent_at))::bigint::text = $3`, made.ID,
		r.all()[0].Header.Get("webhook-signature"), r.all()[0].Header.Get("webhook-timestamp"))
	resend := path + "/deliveries/" + log.Data[0].ID + "/resend"
	s.do("POST", resend, h, "").wants(t, 202)
	await.True(t, "the repeated delivery", func() bool { return len(r.all()) == 2 })
	if all := r.all(); all[0].ID != all[1].ID || all[0].Body != all[1].Body || len(log.Data) != 1 {
		t.Errorf("%+v", all)
	}
	s.do("PATCH", path, h, `{"enabled":false}`).wants(t, 200)
	s.do("POST", resend, h, "").refuses(t, 409, "CONFLICT")
	s.do("POST", path+"/test", h, "").wants(t, 202)
	await.True(t, "the test", func() bool { return len(r.all()) == 3 })
	if got := r.all()[2]; got.Event.Type != "webhook.test" || strings.Contains(got.Body, "sequence") ||
		!strings.Contains(got.Body, made.ID) || !strings.HasPrefix(got.ID, "test_") {
		t.Errorf("%s %s", got.ID, got.Body)
	}
	other := s.holder(h.workspace(), perm.AccountAPIAccess)
	s.get(path+"/deliveries", other).has(t, `"response":null`, `"type":"programme.created"`).
		lacks(t, `programme.created\`)
	s.do("PATCH", path, h, `{"enabled":true}`).wants(t, 200)
	s.do("POST", resend, other, "").refuses(t, 403, "FORBIDDEN")
	s.do("POST", path+"/deliveries/"+uuid.NewString()+"/resend", h, "").refuses(t, 404, "NOT_FOUND")
}

// Endpoints that do not answer delay no others, not even those of their workspace.
func TestDeliveries_SlowEndpointDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	await.True(t, "the other deliveries end before a slow one", func() bool { return quickDespiteSlow(t) })
}

// quickDespiteSlow reports false if the deliveries took so long that a slow endpoint was given up.
func quickDespiteSlow(t *testing.T) bool {
	t.Helper()
	release := make(chan struct{})
	r := newReceiver(t, func(got received) int {
		if got.Event.Type == "programme.created" {
			<-release
		}
		return 200
	})
	defer close(release)
	s := sharedWorker(t).forTest(t)
	slow := s.developer()
	quick := s.developer()
	for range 19 {
		s.addWebhook(slow, r.URL, "programme.created")
	}
	s.addWebhook(slow, r.URL, "form.created")
	s.addWebhook(quick, r.URL, "form.created")
	began := time.Now()
	s.create(slow, `{"name":"One"}`)
	await.True(t, "slow deliveries", func() bool { return len(r.all()) == 19 })
	for _, caller := range []header{slow, quick, quick} {
		before := len(r.all())
		s.do("POST", formsPath, caller, ideaForm).wants(t, 201)
		await.True(t, "another delivery", func() bool { return len(r.all()) == before+1 })
	}
	if slices.Index(r.types(), "form.created") != 19 {
		t.Errorf("received %v", r.types())
	}
	return time.Since(began) < delivery.Timeout
}

// Without ALMONER_WEBHOOK_CA, no delivery reaches this machine, even if a name resolves to it when it is dialled.
func TestDeliveries_DialOnlyPublicAddresses(t *testing.T) {
	r := newReceiver(t, nil)
	s := newOwn(t)
	s.run()
	h := s.developer()
	for _, url := range []string{r.URL, strings.Replace(r.URL, "127.0.0.1", "localhost", 1)} {
		made := s.addWebhook(h, address, "programme.created")
		s.Exec("update account.webhooks set url = $1 where id = $2", url, made.ID) // before its first event
		s.create(h, `{"name":"One"}`)
		await.True(t, "the refusal of "+url, func() bool {
			a := s.get(made.path()+"/deliveries", h)
			return strings.Contains(a.Body, "The host has no public address.")
		})
	}
	if got := len(r.all()); got != 0 {
		t.Errorf("%d deliveries", got)
	}
}

// For 24 hours after the secret was replaced, requests are signed with both secrets, and then only with the new one.
func TestDeliveries_FormerSecretSignsForADay(t *testing.T) {
	r := newReceiver(t, nil)
	s := newWorker(t)
	h := s.developer()
	made := s.addWebhook(h, r.URL, "programme.created")
	replace := func(body string) string {
		t.Helper()
		changed := decoded[webhookRecord](t, s.do("POST", made.path()+"/secret", h, body).wants(t, 200))
		if changed.ID != made.ID || changed.Secret == "" {
			t.Fatal("no new secret")
		}
		return changed.Secret
	}
	signedWith := func(want []bool, secrets ...string) {
		t.Helper()
		before := len(r.all())
		s.create(h, `{"name":"One"}`)
		await.True(t, "a delivery", func() bool { return len(r.all()) == before+1 })
		for i, secret := range secrets {
			if got := r.all()[before].signedWith(t, secret); got != want[i] {
				t.Errorf("signed with secret %d: %t", i+1, got)
			}
		}
	}
	second := replace("")
	signedWith([]bool{true, true}, made.Secret, second)
	s.Exec("update account.webhooks set former_until = now() where {mine}") // a day later
	signedWith([]bool{false, true}, made.Secret, second)
	third := replace(`{"expireOld":true}`)
	signedWith([]bool{false, false, true}, made.Secret, second, third)
	s.Wants(2, `select count(*) from account.audit_events where action = 'webhook.secret_replaced'
		and subject = $1`, "webhook:"+made.ID)
	s.logLacks("whsec_")
}

// An endpoint gets at most 60 test events in an hour.
func TestWebhooks_TestsPerHour(t *testing.T) {
	s, h := newDeveloper(t)
	made := s.addWebhook(h, address, "programme.created")
	s.Exec(`insert into account.webhook_deliveries (id, webhook_id, cause, type, tried_at)
		select gen_random_uuid(), $1, 'test', 'webhook.test', now() from generate_series(1, 59)`, made.ID)
	test := func() answer { t.Helper(); return s.do("POST", made.path()+"/test", h, "") }
	test().wants(t, 202)
	test().refuses(t, 429, "RATE_LIMITED").header(t, "Retry-After", "*")
	const passes = "update account.webhook_deliveries set created_at = now() - interval '1 hour' where webhook_id = $1"
	s.Exec(passes, made.ID)
	test().wants(t, 202)
}

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
			h := s.developer()
			user := s.User()
			s.Member(h.workspace(), user, held...)
			own := s.holding(h.workspace(), user, held...)
			if end.table == grant {
				g := s.Grant(standing.Confidential, h.workspace(), user, resource, held...)
				own = as(s.token(claims(g)), h.workspace()).json()
			}
			made := s.addWebhook(own, r.URL+"/token", "programme.created")
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
			await.True(t, "the first event at both", func() bool { return at("/token") == 1 && at("/page") == 1 })
			if end.set != "" {
				s.Exec("update account."+end.table+" set "+end.set+" where user_id = $1", user)
			}
			s.create(h, `{"name":"Two"}`)
			await.True(t, "the second event at the page's", func() bool { return at("/page") == 2 })
			switch name {
			case "an active token":
				await.True(t, "the second event", func() bool { return at("/token") == 2 })
			case "a narrowed token":
				await.True(t, "the second event is skipped", func() bool {
					return s.Count(`select count(distinct position) from account.webhooks where {mine}`) == 1
				})
			default:
				s.disabled(made, h, "permission")
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
	s, h := newDeveloper(t)
	path := s.addWebhook(h, address, "programme.created").path()
	const bound = `select count(*) from account.webhooks w join account.personal_access_tokens p
		on p.id = w.token_id and p.user_id = w.user_id where w.{mine} and w.grant_id is null and w.added_mail_due`
	s.Wants(1, bound)
	s.Exec(`update account.webhooks set token_id = null where {mine}`)
	s.do("PATCH", path, h, `{"enabled":true}`).wants(t, 200)
	s.Wants(0, bound)
	others := s.holder(h.workspace(), perm.AccountAPIAccess, perm.ProgrammesRead)
	s.do("PATCH", path, others, `{"enabled":true}`).wants(t, 200)
	s.Wants(1, bound)
}
