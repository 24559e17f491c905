package e2e

import (
	"bytes"
	"fmt"
	"html"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

const webhooks = "/v1/webhooks"

// hook is the body that adds an endpoint.
func hook(address string, types ...string) map[string]any {
	return map[string]any{"url": address, "types": types}
}

// names returns the content of /etc/hosts.
func names() string {
	content, _ := os.ReadFile("/etc/hosts") // a machine without the file knows no other names of itself
	return string(content)
}

// Without ALMONER_WEBHOOK_CA, every address of this machine and of private networks is refused, in any spelling.
func TestWebhooks_Addresses(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	for _, address := range []string{
		"http://hooks.example.invalid/", "https://user:password@hooks.example.invalid/",
		"https://hooks.example.invalid/#part", "https://hooks/", "https://localhost/", "https://LOCALHOST.:8443/",
		"https://api.localhost/", "https://ip6-localhost/", "https://127.0.0.1/", "https://127.1/",
		"https://2130706433/", "https://0x7f.1/", "https://017700000001/", "https://%31%32%37.0.0.1/",
		"https://１２７.0.0.1/", "https://[::1]/", "https://[::ffff:7f00:1]/", "https://[64:ff9b::127.0.0.1]/",
		"https://0.0.0.0/", "https://10.0.0.1/", "https://192.168.1.1/", "https://169.254.169.254/latest/meta-data",
		"https://[fe80::1]/", "https://[fd00::1]/",
	} {
		if address == "https://ip6-localhost/" && !strings.Contains(names(), "ip6-localhost") {
			continue
		}
		api.JSON(t, http.MethodPost, webhooks, hook(address, "programme.created")).
			WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	}
	api.JSON(t, http.MethodPost, webhooks, hook("https://hooks.example.invalid/", "programme.created")).
		Wants(t, http.StatusCreated)
}

func TestWebhooks_ManageByAPI(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	body := hook("https://hooks.example.invalid/almoner", "programme.created", "member.added")
	made := keyed(t, api, http.MethodPost, webhooks, body, http.StatusCreated).Object(t)
	path := webhooks + "/" + made["id"].(string)
	if secret, _ := made["secret"].(string); !strings.HasPrefix(secret, "whsec_") || made["enabled"] != true {
		t.Errorf("%v", made)
	}
	read := api.Get(t, path).Wants(t, http.StatusOK)
	list := api.Get(t, webhooks).Wants(t, http.StatusOK)
	for _, answer := range []harness.Answer{read, list} {
		if strings.Contains(string(answer.Body), "secret") || !strings.Contains(string(answer.Body), "almoner") {
			t.Errorf("%s", answer.Body)
		}
	}
	reader := p.Database.Token(t, ws.Workspace, ws.Member(t, harness.APIAccess), harness.APIAccess)
	p.In(ws.Workspace, reader).JSON(t, http.MethodPost, webhooks, body).
		WantsNested(t, http.StatusForbidden, "FORBIDDEN")

	replaced := keyed(t, api, http.MethodPost, path+"/secret", map[string]any{"expireOld": true}, http.StatusOK)
	if secret := replaced.Object(t)["secret"]; secret == made["secret"] {
		t.Error("the secret was not replaced")
	}
	api.JSON(t, http.MethodPost, path+"/secret", map[string]any{"expireOld": "yes"}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	test := keyed(t, api, http.MethodPost, path+"/test", "", http.StatusAccepted).Object(t)
	api.Get(t, path+"/deliveries").Wants(t, http.StatusOK)
	resend := path + "/deliveries/" + test["id"].(string) + "/resend"
	keyed(t, api, http.MethodPost, resend, "", http.StatusAccepted)
	api.JSON(t, http.MethodPatch, path, map[string]any{"includePersonalData": true}).
		WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	keyed(t, api, http.MethodPatch, path, map[string]any{"includePersonalData": false}, http.StatusOK)
	keyed(t, api, http.MethodPatch, path, map[string]any{"enabled": false}, http.StatusOK)
	deleted(t, api, path, http.StatusNoContent)
	api.Send(t, http.MethodDelete, path, "", "").WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	api.Get(t, path).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
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
	expireJobs(t, p)
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
