package e2e

import (
	"bytes"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Connections and members write events too. A refresh changes nothing that an integration can see, and writes none.
func TestEvents_FollowConnectionsAndMembers(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	events := func(after int64) (types []string, last int64) {
		t.Helper()
		page := api.Get(t, fmt.Sprint("/v1/events?limit=200&after=", after)).Wants(t, http.StatusOK).Object(t)
		last = after
		for _, one := range page["data"].([]any) {
			event := one.(map[string]any)
			types = append(types, event["type"].(string))
			last = int64(event["sequence"].(float64))
			if id, _ := event["data"].(map[string]any)["id"].(string); len(id) != 36 {
				t.Errorf("an event without id: %v", event)
			}
		}
		return types, last
	}
	wants := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	_, last := events(0)

	connector := ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	types, last := events(last)
	wants("approved", types, "connection.approved")
	for range 2 {
		tokens = connector.WantsWorking(t, tokens)
	}
	types, last = events(last)
	wants("refreshed", types)
	p.Database.Exec(t, `update account.grants set state = 'revoked', revoked_at = now(),
		revoke_reason = 'revoked_by_user' where tenant_id = $1 and state = 'active'`, ws.Workspace.ID)
	types, last = events(last)
	wants("ended", types, "connection.ended")

	member := ws.Member(t, harness.ReadProgrammes)
	p.Database.Exec(t, `update account.memberships set permissions = '{}' where user_id = $1`, member.ID)
	p.Database.Exec(t, `update account.memberships set permissions = '{}' where user_id = $1`, member.ID)
	p.Database.Exec(t, `delete from account.memberships where user_id = $1`, member.ID)
	types, _ = events(last)
	wants("members", types, "member.added", "member.updated", "member.removed")
}

const webhooks = "/v1/webhooks"

// hook is the body that adds an endpoint.
func hook(address string, types ...string) map[string]any {
	return map[string]any{"url": address, "types": types}
}

// What endpoints may read, and what their answers contain, package app of resourceapi tests.
func TestWebhooks_ManageByAPI(t *testing.T) {
	p, ws := inWorkspace(t)
	api := workspaceOf(p, ws)
	body := hook("https://hooks.example.invalid/almoner", "programme.created", "member.added")
	made := keyed(t, api, http.MethodPost, webhooks, body, http.StatusCreated).Object(t)
	path := webhooks + "/" + made["id"].(string)
	replaced := keyed(t, api, http.MethodPost, path+"/secret", map[string]any{"expireOld": true}, http.StatusOK)
	if secret := replaced.Object(t)["secret"]; secret == made["secret"] {
		t.Error("the secret was not replaced")
	}
	test := keyed(t, api, http.MethodPost, path+"/test", "", http.StatusAccepted).Object(t)
	keyed(t, api, http.MethodPost, path+"/deliveries/"+test["id"].(string)+"/resend", "", http.StatusAccepted)
	keyed(t, api, http.MethodPatch, path, map[string]any{"enabled": false}, http.StatusOK)
	for _, read := range []string{webhooks, path, path + "/deliveries"} {
		api.Get(t, read).Wants(t, http.StatusOK)
	}
	deleted(t, api, path, http.StatusNoContent)
}

// Events are delivered to endpoints that were added by the API and on the page, with signatures that the Go client
// verifies. The services have different keys: resourceapi can open the secret that authserver sealed.
func TestWebhooks_Deliver(t *testing.T) {
	t.Parallel()
	receiver := harness.NewReceiver(t)
	s := harness.Private(t, harness.Options{Worker: true, Settings: receiver.Settings()})
	p := harness.NewProduct(t, s, &met)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	made := api.JSON(t, http.MethodPost, webhooks, hook(receiver.URL+"/api", "programme.created", "programme.updated")).
		Wants(t, http.StatusCreated).Object(t)
	secrets := map[string]client.Secret{"/api": client.Secret(made["secret"].(string))}
	secrets["/page"] = addOnPage(t, p, ws, receiver.URL+"/page")

	first := api.JSON(t, http.MethodPost, programmes, map[string]any{"name": "Night Shelter"}).
		Wants(t, http.StatusCreated).Object(t)
	path := programmes + "/" + first["id"].(string)
	for i := range 3 {
		api.JSON(t, http.MethodPatch, path, map[string]any{"summary": fmt.Sprint("Version ", i)}).
			Wants(t, http.StatusOK)
	}
	await.True(t, "the deliveries", func() bool {
		return len(receiver.At("/api")) == 4 && len(receiver.At("/page")) == 1
	})
	for at, secret := range secrets {
		verifier, err := client.NewWebhookVerifier(secret)
		must(t, err)
		last := int64(0)
		for _, got := range receiver.At(at) {
			event, err := verifier.Verify(got.Header, got.Body)
			if err != nil || event.WorkspaceID != ws.Workspace.ID || event.Sequence <= last ||
				event.Data.ID != first["id"] || strings.Contains(string(got.Body), "Shelter") {
				t.Errorf("%s: %+v, %v", at, event, err)
			}
			last = event.Sequence
			if _, err := verifier.Verify(got.Header, bytes.ToUpper(got.Body)); err == nil {
				t.Error("a changed body is verified")
			}
		}
	}
	workerDies(t, p, s.Worker, receiver, api)
	if log, err := harness.ReadLogs(s.LogDir()); err != nil || bytes.Contains(log, []byte("whsec_")) ||
		bytes.Contains(log, []byte(receiver.URL)) {
		t.Errorf("a secret or a URL is in a log: %v", err)
	}
}

var webhookSecret = regexp.MustCompile(`whsec_[A-Za-z0-9+/]{43}=`)

// addOnPage adds an endpoint for programme.created in Settings → Developers and returns its secret.
func addOnPage(t *testing.T, p *harness.Product, ws harness.TestWorkspace, address string) client.Secret {
	t.Helper()
	owner := p.Person(t, ws.Owner)
	page := owner.Arrive(t, p.AppURL+"/settings/webhooks/new?tenant="+ws.Workspace.ID).WantsPage(t, http.StatusOK)
	form := page.FormWith(t, "#webhook-url")
	form.Fields.Set("url", address)
	form.Fields["types"] = []string{"programme.created"}
	page = owner.Submit(t, form).WantsPage(t, http.StatusOK)
	secret := webhookSecret.FindString(html.UnescapeString(string(page.Body)))
	if secret == "" {
		t.Fatalf("no secret:\n%s", page)
	}
	page.WantsText(t, address, "It is shown only once")
	page.WantsHeader(t, "Cache-Control", "no-store")
	if again := owner.Arrive(t, developersURL(p, ws)); strings.Contains(string(again.Body), "whsec_") {
		t.Error("the secret is shown again")
	}
	return client.Secret(secret)
}

// workerDies kills the worker after an endpoint has received an event and before it responds. The event is sent again
// with the same id, and no event is lost.
func workerDies(t *testing.T, p *harness.Product, worker *stack.Service, receiver *harness.Receiver, api harness.API) {
	t.Helper()
	before := len(receiver.At("/api"))
	receiver.Pause()
	for i := range 3 {
		api.JSON(t, http.MethodPost, programmes, map[string]any{"name": fmt.Sprint("Pantry ", i)}).
			Wants(t, http.StatusCreated)
	}
	await.True(t, "the event before the kill", func() bool { return len(receiver.At("/api")) == before+1 })
	worker.Kill()
	p.Database.Exec(t, "update account.webhooks set claimed_until = now() where claimed_until > now()") // half a minute
	receiver.Resume()
	must(t, worker.Restart(t.Context()))
	var ids []string
	await.True(t, "the events after the kill", func() bool {
		ids = nil
		for _, got := range receiver.At("/api")[before:] {
			ids = append(ids, got.Header.Get("webhook-id"))
		}
		unique := slices.Compact(slices.Clone(ids))
		return len(unique) == 3
	})
	if ids[0] != ids[1] {
		t.Errorf("the event without an answer was not repeated: %q", ids)
	}
}
