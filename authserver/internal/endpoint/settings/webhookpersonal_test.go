package settings_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A user asks for personal data when the endpoint is added, or later. Another user who enables the endpoint does not
// get it.
func TestWebhooks_PersonalData(t *testing.T) {
	t.Parallel()
	site, _ := hookSite(t)
	ada, bob := developer(site, perm.EngageReadSubmissions), developer(site, perm.EngageReadSubmissions)
	browser := site.SignedIn(ada)
	wants := func(what string, user browsertest.Person, want bool) {
		t.Helper()
		n := site.Count("select count(*) from account.webhooks where user_id = $1 and personal_data_for = $1", user.ID)
		if n == 1 != want {
			t.Errorf("%s: %d endpoints get personal data", what, n)
		}
	}
	form := webhookForm(browser.Get(newHook), "https://hooks.example.invalid/", "submission.created")
	form.Set("personal", "yes")
	page := browser.Post(webhooks, form)
	if page.Status != http.StatusOK || !page.HasText("With personal data") {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	wants("added", ada, true)
	log := developers + "/webhook?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" + hookID(t, page)
	change := func(as *browsertest.Browser) *browsertest.Page {
		return as.Post(webhooks+"/personal-data", as.Get(log).Form(webhooks+"/personal-data")).Follow()
	}
	if page = change(browser); !page.HasText("now sent without personal data") || page.HasText("With personal data") {
		t.Error(page.Text())
	}
	wants("omitted", ada, false)
	if page = change(browser); !page.HasText("now sent with personal data") || !page.HasText("With personal data") {
		t.Error(page.Text())
	}
	wants("included", ada, true)
	bobs := site.SignedIn(bob)
	bobs.Post(webhooks+"/disable", bobs.Get(log).Form(webhooks+"/disable"))
	bobs.Post(webhooks+"/enable", bobs.Get(log).Form(webhooks+"/enable"))
	wants("enabled by another user", bob, false)
	if page = change(bobs); !page.HasText("now sent with personal data") {
		t.Error(page.Text())
	}
	wants("included by the other user", bob, true)
	if n := site.Count(`select count(*) from account.audit_events where action = $1
		and detail -> 'personal_data' = 'true'`, audit.WebhookAdded); n != 1 {
		t.Errorf("%d events of the new endpoint", n)
	}
	if n := site.Count("select count(*) from account.audit_events where action = $1", audit.WebhookChanged); n != 3 {
		t.Errorf("%d events of the changes", n)
	}
}

// Personal data needs the permission to read the events of the endpoint, and reauthentication.
func TestWebhooks_PersonalDataNeedsPermission(t *testing.T) {
	site, _ := hookSite(t)
	ada, bob := developer(site, perm.EngageReadSubmissions), developer(site)
	id := uuid.New()
	site.Fixture.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key,
		position, created_at) values ($1, $2, $3, 'https://hooks.example.invalid/', '{submission.created}', '', '', 0,
		now())`, id, site.Fixture.WorkspaceID, ada.ID)
	log := developers + "/webhook?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" + id.String()
	included := func() bool {
		return site.Count("select count(*) from account.webhooks where personal_data_for is not null") == 1
	}
	bobs := site.SignedIn(bob)
	form := bobs.Get(log).Form(webhooks + "/personal-data")
	if page := bobs.Post(webhooks+"/personal-data", form).Follow(); !page.HasText("events that you may not read") ||
		included() {
		t.Errorf("%s", page.Text())
	}
	browser := site.SignedIn(ada)
	site.Wait(11 * time.Minute)
	page := browser.Post(webhooks+"/personal-data", browser.Get(log).Form(webhooks+"/personal-data"))
	if page.Status != http.StatusBadRequest || !page.HasText("Nothing was changed.") || included() {
		t.Errorf("without a password: %d %s", page.Status, page.Text())
	}
	form = page.Form(webhooks + "/personal-data")
	form.Set("password", browsertest.Password)
	browser.Post(webhooks+"/personal-data", form)
	if !included() {
		t.Error("not included with the password")
	}
	form.Set("id", uuid.NewString())
	if page := browser.Post(webhooks+"/personal-data", form).Follow(); !page.HasText("no longer exists") {
		t.Errorf("%s", page.Text())
	}
}
