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
	site := hookSite(t)
	ada, bob := developer(site, perm.EngageReadSubmissions), developer(site, perm.EngageReadSubmissions)
	browser := site.SignedIn(ada)
	personal := func(want int, user browsertest.Person) {
		t.Helper()
		site.Rows(want, "webhooks", "user_id = $1 and personal_data_for = $1", user.ID)
	}
	form := webhookForm(browser.Get(newHook), "https://hooks.example.invalid/", "submission.created")
	form.Set("personal", "yes")
	page := browser.Post(webhooks, form)
	page.Wants(http.StatusOK, "With personal data")
	personal(1, ada)
	log := hookLog(site, hookID(t, page))
	change := func(as *browsertest.Browser) *browsertest.Page {
		return as.Post(webhooks+"/personal-data", as.Get(log).Form(webhooks+"/personal-data")).Follow()
	}
	change(browser).Says("now sent without personal data").Lacks("With personal data")
	personal(0, ada)
	change(browser).Says("now sent with personal data", "With personal data")
	personal(1, ada)
	bobs := site.SignedIn(bob)
	bobs.Post(webhooks+"/disable", bobs.Get(log).Form(webhooks+"/disable"))
	bobs.Post(webhooks+"/enable", bobs.Get(log).Form(webhooks+"/enable"))
	personal(0, bob)
	change(bobs).Says("now sent with personal data")
	personal(1, bob)
	site.Rows(1, "audit_events", `action = $1
		and detail -> 'personal_data' = 'true'`, audit.WebhookAdded)
	site.Rows(3, "audit_events", "action = $1", audit.WebhookChanged)
}

// Personal data needs the permission to read the events of the endpoint, and reauthentication.
func TestWebhooks_PersonalDataNeedsPermission(t *testing.T) {
	site := own(t)
	publishedKey(t, site)
	ada, bob := developer(site, perm.EngageReadSubmissions), developer(site)
	id := uuid.New()
	site.Fixture.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key,
		position, created_at) values ($1, $2, $3, 'https://hooks.example.invalid/', '{submission.created}', '', '', 0,
		now())`, id, site.Fixture.WorkspaceID, ada.ID)
	log := hookLog(site, id.String())
	const included = "personal_data_for is not null"
	bobs := site.SignedIn(bob)
	form := bobs.Get(log).Form(webhooks + "/personal-data")
	bobs.Post(webhooks+"/personal-data", form).Follow().Says("events that you may not read")
	site.Rows(0, "webhooks", included)
	browser := site.SignedIn(ada)
	site.Wait(11 * time.Minute)
	page := browser.Post(webhooks+"/personal-data", browser.Get(log).Form(webhooks+"/personal-data"))
	page.As("without a password").Wants(http.StatusBadRequest, "Nothing was changed.")
	site.Rows(0, "webhooks", included)
	form = page.Form(webhooks + "/personal-data")
	form.Set("password", browsertest.Password)
	browser.Post(webhooks+"/personal-data", form)
	site.Rows(1, "webhooks", included)
	form.Set("id", uuid.NewString())
	browser.Post(webhooks+"/personal-data", form).Follow().Says("no longer exists")
}
