package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
)

const aForm = `{"title":"T","allowedOrigins":[],"fields":[{"name":"a","label":"a","type":"text","required":false}]}`

func TestDeliveries_AreSignedAndInOrder(t *testing.T) {
	r := newReceiver(t, nil)
	s := newWorker(t)
	workspaceID, h := s.developer()
	s.create(h, `{"name":"Before the endpoint"}`)
	made := s.addWebhook(h, r.URL+"/hook?key=1", "programme.created", "programme.updated")
	programme := s.create(h, `{"name":"Spring pantry"}`)
	path := listPath + "/" + programme.ID.String()
	for i := range 5 {
		s.do("PATCH", path, h, fmt.Sprintf(`{"summary":"Version %d"}`, i)).wants(t, 200)
	}
	s.do("DELETE", path, h, "").wants(t, 204) // of another type
	s.create(h, `{"name":"Summer pantry"}`)
	within(t, "seven deliveries", func() bool { return len(r.all()) == 7 })
	verifier, err := standardwebhooks.NewWebhook(made.Secret)
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	for i, got := range r.all() {
		if err := verifier.Verify([]byte(got.Body), got.Header); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		want := "programme.updated"
		if i == 0 || i == 6 {
			want = "programme.created"
		}
		if got.Event.Type != want || got.Event.Sequence <= last || got.Event.WorkspaceID != workspaceID.String() ||
			got.Event.Timestamp.IsZero() || strings.Contains(got.Body, "pantry") ||
			strings.Contains(got.Body, "Version") ||
			got.ID != "evt_"+workspaceID.String()+"_"+strconv.FormatInt(got.Event.Sequence, 10) ||
			got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%d: %s %s", i, got.ID, got.Body)
		}
		last = got.Event.Sequence
	}
	var data struct {
		ID      uuid.UUID
		Changed []string
	}
	if err := json.Unmarshal(r.all()[1].Event.Data, &data); err != nil || data.ID != programme.ID ||
		!slices.Equal(data.Changed, []string{"summary"}) {
		t.Errorf("%+v, %v", data, err)
	}
	within(t, "the log", func() bool {
		a := s.get(webhooksPath+"/"+made.ID+"/deliveries", h)
		return a.Status == 200 && strings.Count(a.Body, `"state":"accepted"`) == 7 &&
			strings.Count(a.Body, `"status":204`) == 7
	})
	if strings.Contains(s.log.String(), "whsec_") || strings.Contains(s.log.String(), "key=1") {
		t.Error("a secret or a URL is in the log")
	}
}

func TestDeliveries_RetriesHaveSameID(t *testing.T) {
	var failing sync.Map
	failing.Store("status", 500)
	r := newReceiver(t, func(received) int {
		status, _ := failing.Load("status")
		return status.(int)
	})
	s := newWorker(t)
	_, h := s.developer()
	made := s.addWebhook(h, r.URL, "programme.created")
	s.create(h, `{"name":"One"}`)
	s.create(h, `{"name":"Two"}`)
	within(t, "an attempt", func() bool { return len(r.all()) == 1 })
	failing.Store("status", 302)
	within(t, "the state", s.failures(1))
	if got := s.rows("account.webhooks", `next_try_at > now() + interval '2 s'
		and next_try_at < now() + interval '6 s'`); got != 1 {
		t.Error("the next attempt is not after five seconds")
	}
	s.retryNow()
	within(t, "another attempt", func() bool { return len(r.all()) == 2 })
	within(t, "the state", s.failures(2))
	failing.Store("status", 200)
	s.retryNow()
	within(t, "both events", func() bool { return len(r.all()) == 4 })
	all := r.all()
	if all[0].ID != all[1].ID || all[1].ID != all[2].ID || all[2].ID == all[3].ID || all[0].Body != all[2].Body {
		t.Errorf("%q %q %q %q", all[0].ID, all[1].ID, all[2].ID, all[3].ID)
	}
	within(t, "the state", func() bool {
		return s.rows("account.webhooks", "failures = 0 and failing_since is null") == 1
	})
	a := s.get(webhooksPath+"/"+made.ID+"/deliveries", h)
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
	_, h := s.developer()
	failing, gone := s.addWebhook(h, r.URL, "programme.created"), s.addWebhook(h, r.URL, "form.created")
	reason := func(made webhookRecord) string {
		var now webhookRecord
		s.get(webhooksPath+"/"+made.ID, h).decode(t, &now)
		return now.DisabledReason
	}
	s.do("POST", formsPath, h, aForm).wants(t, 201)
	within(t, "disabled because of 410", func() bool { return reason(gone) == "gone" })
	s.create(h, `{"name":"One"}`)
	within(t, "a failure", s.failures(1))
	s.Exec("update account.webhooks set failing_since = now() - interval '71 hours 59 minutes' where {mine}")
	s.retryNow()
	within(t, "a failure", s.failures(2))
	if got := s.rows("account.webhooks", `failures = 2
		and next_try_at between now() and now() + interval '1 minute'`); got != 1 || reason(failing) != "" {
		t.Errorf("the last attempt is not after three days: %q", reason(failing))
	}
	s.Exec("update account.webhooks set failing_since = now() - interval '72 hours' where {mine}")
	s.retryNow()
	within(t, "disabled after three days", func() bool { return reason(failing) == "failing" })
	s.wantsRows(2, "account.webhooks", "mail_due")
	if got := s.rows("account.audit_events", `action = 'webhook.disabled'
		and actor = 'system' and detail ->> 'reason' in ('gone', 'failing')`); got != 2 {
		t.Errorf("%d events in the audit log", got)
	}
	before := len(r.all())
	s.addWebhook(h, r.URL, "programme.created")
	s.create(h, `{"name":"Two"}`)
	within(t, "a failure of the enabled endpoint", s.failures(1))
	s.retryNow() // a disabled endpoint that is due would get the event by then
	within(t, "another delivery to the enabled endpoint", func() bool { return len(r.all()) >= before+2 })
	if got := len(r.all()); got != before+2 {
		t.Errorf("%d deliveries to disabled endpoints", got-before-2)
	}
}

func TestDeliveries_OnlyEventsThatUserMayRead(t *testing.T) {
	r := newReceiver(t, nil)
	s := newWorker(t)
	workspaceID, h := s.developer()
	user := s.User()
	held := []perm.Permission{perm.AccountAPIAccess, perm.ProgrammesRead, perm.AccountReadMembers}
	s.Member(workspaceID, user, held...)
	own := as(s.PAT(workspaceID, user, held...).Reveal(), workspaceID).json()
	made := s.addWebhook(own, r.URL, "programme.created", "member.updated")
	s.create(h, `{"name":"One"}`)
	within(t, "a delivery", func() bool { return slices.Equal(r.types(), []string{"programme.created"}) })
	s.Member(workspaceID, user, perm.AccountAPIAccess, perm.AccountReadMembers)
	s.create(h, `{"name":"Two"}`)
	within(t, "the change of the member", func() bool {
		return slices.Equal(r.types(), []string{"programme.created", "member.updated"})
	})
	within(t, "the second programme is skipped", func() bool {
		return s.Count(`select count(*) from account.webhooks where id = $1 and position >=
			(select max(sequence) from account.events
				where {mine} and type = 'programme.created' having count(sequence) = 2)`,
			made.ID) == 1
	})
	s.Member(workspaceID, user, held...)
	within(t, "the second change of the member", func() bool { return len(r.all()) == 3 })
	s.RemoveMember(workspaceID, user)
	s.create(h, `{"name":"Three"}`)
	var now webhookRecord
	within(t, "disabled", func() bool {
		s.get(webhooksPath+"/"+made.ID, h).decode(t, &now)
		return !now.Enabled
	})
	if got := r.types(); now.DisabledReason != "permission" ||
		!slices.Equal(got, []string{"programme.created", "member.updated", "member.updated"}) ||
		s.rows("account.webhooks", "mail_due") != 0 {
		t.Errorf("%+v, %q", now, got)
	}
	// After a member enables it again, the permissions of that member apply.
	s.do("PATCH", webhooksPath+"/"+made.ID, h, `{"enabled":true}`).wants(t, 200)
	within(t, "the missed event", func() bool { return len(r.all()) == 4 && r.types()[3] == "programme.created" })
}

func TestDeliveries_TestAndResend(t *testing.T) {
	r := newReceiver(t, nil)
	s := newWorker(t)
	workspaceID, h := s.developer()
	made := s.addWebhook(h, r.URL, "programme.created")
	path := webhooksPath + "/" + made.ID
	s.create(h, `{"name":"One"}`)
	within(t, "a delivery", func() bool { return len(r.all()) == 1 })
	var log struct {
		Data []struct{ ID, State, Cause string }
	}
	within(t, "the log", func() bool {
		s.get(path+"/deliveries", h).decode(t, &log)
		return len(log.Data) == 1 && log.Data[0].State == "accepted"
	})
	s.do("POST", path+"/deliveries/"+log.Data[0].ID+"/resend", h, "").wants(t, 202)
	within(t, "the repeated delivery", func() bool { return len(r.all()) == 2 })
	if all := r.all(); all[0].ID != all[1].ID || all[0].Body != all[1].Body {
		t.Errorf("%+v", all)
	}
	s.do("PATCH", path, h, `{"enabled":false}`).wants(t, 200)
	wantsRefused(t, s.do("POST", path+"/deliveries/"+log.Data[0].ID+"/resend", h, ""), 409, "CONFLICT")
	s.do("POST", path+"/test", h, "").wants(t, 202)
	within(t, "the test", func() bool { return len(r.all()) == 3 })
	if got := r.all()[2]; got.Event.Type != "webhook.test" || strings.Contains(got.Body, "sequence") ||
		!strings.Contains(got.Body, made.ID) || !strings.HasPrefix(got.ID, "test_") {
		t.Errorf("%s %s", got.ID, got.Body)
	}
	other := s.holder(workspaceID, perm.AccountAPIAccess)
	s.do("PATCH", path, h, `{"enabled":true}`).wants(t, 200)
	wantsRefused(t, s.do("POST", path+"/deliveries/"+log.Data[0].ID+"/resend", other, ""), 403, "FORBIDDEN")
	wantsRefused(t, s.do("POST", path+"/deliveries/"+uuid.NewString()+"/resend", h, ""), 404, "NOT_FOUND")
}

// An endpoint that does not answer does not delay others.
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
	_, slow := s.developer()
	_, quick := s.developer()
	for range 20 {
		s.addWebhook(slow, r.URL, "programme.created")
	}
	s.addWebhook(quick, r.URL, "form.created")
	began := time.Now()
	s.create(slow, `{"name":"One"}`)
	within(t, "slow deliveries", func() bool { return len(r.all()) >= 4 })
	s.do("POST", formsPath, quick, aForm).wants(t, 201)
	within(t, "the other delivery", func() bool { return slices.Contains(r.types(), "form.created") })
	s.do("POST", formsPath, quick, aForm).wants(t, 201)
	within(t, "a second one", func() bool { return len(r.all()) >= 6 })
	got := len(r.all()) - 2
	if time.Since(began) >= delivery.Timeout {
		return false
	}
	if got != 4 {
		t.Errorf("%d endpoints of one workspace are called at once", got)
	}
	return true
}

// Without ALMONER_WEBHOOK_CA, no delivery reaches this machine, even if a name resolves to it when it is dialled.
func TestDeliveries_DialOnlyPublicAddresses(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	s := ownService(t)
	s.run()
	_, h := s.developer()
	made := s.addWebhook(h, "https://hooks.example.invalid/", "programme.created")
	s.Exec("update account.webhooks set url = $1 where {mine}", r.URL)
	s.create(h, `{"name":"One"}`)
	within(t, "the refusal", func() bool {
		a := s.get(webhooksPath+"/"+made.ID+"/deliveries", h)
		return strings.Contains(a.Body, "The host has no public address.")
	})
	byName := strings.Replace(r.URL, "127.0.0.1", "localhost", 1)
	s.Exec("update account.webhooks set url = $1, next_try_at = now() where {mine}", byName)
	within(t, "the refusal by name", func() bool {
		return s.Count(`select count(*) from account.webhook_deliveries
			where webhook_id in (select id from account.webhooks where {mine})
			and problem = 'The host has no public address.'`) == 2
	})
	if got := len(r.all()); got != 0 {
		t.Errorf("%d deliveries", got)
	}
}

// A Retry-After of the endpoint delays the next attempt.
func TestDeliveries_RetryAfterDelaysNextAttempt(t *testing.T) {
	r := newReceiver(t, func(received) int { return http.StatusServiceUnavailable })
	s := newWorker(t)
	_, h := s.developer()
	s.addWebhook(h, r.URL, "programme.created")
	s.create(h, `{"name":"One"}`)
	within(t, "the state", s.failures(1))
	if got := s.rows("account.webhooks", `next_try_at > now() + interval '590 s'
		and next_try_at < now() + interval '610 s'`); got != 1 {
		t.Error("the next attempt is not after ten minutes")
	}
}

// For 24 hours after the secret was replaced, requests are signed with both secrets, and then only with the new one.
func TestDeliveries_FormerSecretSignsForADay(t *testing.T) {
	r := newReceiver(t, nil)
	s := newWorker(t)
	_, h := s.developer()
	made := s.addWebhook(h, r.URL, "programme.created")
	path := webhooksPath + "/" + made.ID + "/secret"
	replace := func(body string) (changed webhookRecord) {
		t.Helper()
		a := s.do("POST", path, h, body)
		if a.decode(t, &changed); a.Status != 200 || changed.ID != made.ID || changed.Secret == "" {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		return changed
	}
	verified := func(secrets ...string) (valid []bool) {
		t.Helper()
		before := len(r.all())
		s.create(h, `{"name":"One"}`)
		within(t, "a delivery", func() bool { return len(r.all()) == before+1 })
		got := r.all()[before]
		for _, secret := range secrets {
			verifier, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			valid = append(valid, verifier.Verify([]byte(got.Body), got.Header) == nil)
		}
		return valid
	}
	second := replace("")
	if got := verified(made.Secret, second.Secret); !slices.Equal(got, []bool{true, true}) {
		t.Errorf("after the first replacement: %v", got)
	}
	s.Exec("update account.webhooks set former_until = now() where {mine}")
	if got := verified(made.Secret, second.Secret); !slices.Equal(got, []bool{false, true}) {
		t.Errorf("a day later: %v", got)
	}
	third := replace(`{"expireOld":true}`)
	if got := verified(made.Secret, second.Secret, third.Secret); !slices.Equal(got, []bool{false, false, true}) {
		t.Errorf("after a replacement that ends the former secret: %v", got)
	}
	if n := s.Count(`select count(*) from account.audit_events where action = 'webhook.secret_replaced'
		and subject = $1`, "webhook:"+made.ID); n != 2 {
		t.Errorf("%d events in the audit log", n)
	}
	if strings.Contains(s.log.String(), "whsec_") {
		t.Error("a secret is in the log")
	}
}

// An endpoint gets at most 60 test events in an hour.
func TestWebhooks_TestsPerHour(t *testing.T) {
	s := newService(t)
	_, h := s.developer()
	made := s.addWebhook(h, "https://hooks.example.invalid/", "programme.created")
	s.Exec(`insert into account.webhook_deliveries (id, webhook_id, cause, type, tried_at)
		select gen_random_uuid(), $1, 'test', 'webhook.test', now() from generate_series(1, 59)`, made.ID)
	path := webhooksPath + "/" + made.ID + "/test"
	s.do("POST", path, h, "").wants(t, 202)
	a := s.do("POST", path, h, "")
	wantsRefused(t, a, 429, "RATE_LIMITED")
	a.header(t, "Retry-After", "*")
	s.Exec(`update account.webhook_deliveries set created_at = now() - interval '1 hour'
		where webhook_id = $1`, made.ID)
	s.do("POST", path, h, "").wants(t, 202)
}
