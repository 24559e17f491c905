package settings_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// hookSite is a site whose resourceapi has published a key.
func hookSite(t *testing.T) (*browsertest.Server, *webhook.Keys) {
	t.Helper()
	site := browsertest.Own(t)
	keys, err := webhook.NewKeys(seal.NewKeys([]byte("0123456789abcdef0123456789abcdef")))
	if err != nil {
		t.Fatal(err)
	}
	site.Fixture.Exec("insert into account.webhook_keys (public_key) values ($1)", keys.Public())
	return site, keys
}

// webhookForm returns the filled-in form for a new endpoint.
func webhookForm(page *browsertest.Page, address string, types ...string) url.Values {
	form := page.Form(webhooks)
	form.Set("url", address)
	form["types"] = types
	return form
}

var webhookSecret = regexp.MustCompile(`whsec_[A-Za-z0-9+/]{43}=`)

// hookID returns the id of the only endpoint in the list.
func hookID(t *testing.T, page *browsertest.Page) string {
	t.Helper()
	for _, link := range page.Elements("a") {
		if address := browsertest.Attribute(link, "href"); strings.HasPrefix(address, developers+"/webhook?") {
			_, id, _ := strings.Cut(address, "&id=")
			return id
		}
	}
	t.Fatalf("no endpoint: %s", page.Text())
	return ""
}

func TestWebhooks_SecretIsShownOnceAndSealed(t *testing.T) {
	t.Parallel()
	site, keys := hookSite(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	const address = "https://hooks.example.invalid/almoner?key=1"
	form := webhookForm(browser.Get(newHook), " "+address+" ", "programme.created", "connection.ended")
	page := browser.Post(webhooks, form)
	secret := webhookSecret.FindString(html.UnescapeString(page.Body))
	if page.Status != http.StatusOK || secret == "" || !page.HasText(address) {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	id := uuid.MustParse(hookID(t, page))
	var sealed webhook.Sealed
	for _, n := range []int{
		site.Count(`select count(*) from account.webhooks where id = $1 and user_id = $2 and tenant_id = $3 and enabled
			and url = $4 and types = '{programme.created,connection.ended}'`,
			id, ada.ID, site.Fixture.WorkspaceID, address),
		site.Count(`select count(*) from account.audit_events where action = $1 and subject = $2 and user_id = $3
			and detail = '{"host": "hooks.example.invalid"}'`, audit.WebhookAdded, "webhook:"+id.String(), ada.ID),
	} {
		if n != 1 {
			t.Errorf("%d rows", n)
		}
	}
	site.Fixture.Read("select secret, secret_key from account.webhooks", &sealed.Secret, &sealed.Key)
	if opened, err := keys.Open(id, sealed); err != nil || opened.Reveal() != secret {
		t.Errorf("%q, %v; shown %q", opened.Reveal(), err, secret)
	}
	again := browser.Post(webhooks, form)
	if strings.Contains(again.Body, "whsec_") || !again.HasText("already added") ||
		site.Count("select count(*) from account.webhooks") != 1 {
		t.Errorf("the same form again: %s", again.Text())
	}
	if strings.Contains(browser.Get(hooks).Body, "whsec_") {
		t.Error("the secret is shown again")
	}
	if strings.Contains(site.Log.String(), secret) || strings.Contains(site.Log.String(), "key=1") {
		t.Error("the secret or the URL is in the log")
	}
}

func TestWebhooks_BadFormKeepsInput(t *testing.T) {
	t.Parallel()
	site, _ := hookSite(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	for name, c := range map[string]struct {
		address string
		types   []string
		words   string
	}{
		"no https":        {"http://hooks.example.invalid/", []string{"programme.created"}, "begins with https://"},
		"this machine":    {"https://127.1:8443/", []string{"programme.created"}, "usual spelling"},
		"a private host":  {"https://10.0.0.1/", []string{"programme.created"}, "The host must be public"},
		"no kind":         {"https://hooks.example.invalid/", nil, "Choose at least one kind"},
		"an unknown kind": {"https://hooks.example.invalid/", []string{"x.y"}, "events that you may read"},
		"an event that the user may not read": {
			"https://hooks.example.invalid/",
			[]string{"programme.created", "submission.created"},
			"events that you may read",
		},
	} {
		page := browser.Post(webhooks, webhookForm(browser.Get(newHook), c.address, c.types...))
		kept := page.Form(webhooks)
		offered := slices.DeleteFunc(slices.Clone(c.types), func(one string) bool { return one != "programme.created" })
		if page.Status != http.StatusBadRequest || !page.HasText("The endpoint was not added.") ||
			!page.HasText(c.words) || kept.Get("url") != c.address || !slices.Equal(kept["types"], offered) {
			t.Errorf("%s: %d %v %s", name, page.Status, kept, page.Text())
		}
	}
	if page := browser.Get(newHook); page.HasText("submission.created") {
		t.Error("events that the user may not read are offered")
	}
	if site.Count("select count(*) from account.webhooks") != 0 {
		t.Error("an endpoint is stored")
	}
}

func TestWebhooks_LimitPerWorkspaceAndMissingKey(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	add := func() *browsertest.Page {
		page := browser.Get(newHook)
		return browser.Post(webhooks, webhookForm(page, "https://hooks.example.invalid/", "programme.created"))
	}
	if page := add(); page.Status != http.StatusServiceUnavailable || !page.HasText("not available yet") {
		t.Errorf("%d %s", page.Status, page.Text())
	}
	keys, err := webhook.NewKeys(seal.NewKeys([]byte("0123456789abcdef0123456789abcdef")))
	if err != nil {
		t.Fatal(err)
	}
	site.Fixture.Exec("insert into account.webhook_keys (public_key) values ($1)", keys.Public())
	for range 20 {
		if page := add(); page.Status != http.StatusOK {
			t.Fatalf("%d %s", page.Status, page.Text())
		}
	}
	if page := add(); page.Status != http.StatusConflict || !page.HasText("which is the maximum") {
		t.Errorf("%d %s", page.Status, page.Text())
	}
}

func TestWebhooks_ChangeAndLog(t *testing.T) {
	t.Parallel()
	site, _ := hookSite(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	form := webhookForm(browser.Get(newHook), "https://hooks.example.invalid/", "programme.created")
	page := browser.Post(webhooks, form)
	id := hookID(t, page)
	log := developers + "/webhook?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" + id

	test := browser.Get(log).Form(webhooks + "/test")
	for range 2 { // the same form sent twice sends one event
		done := browser.Post(webhooks+"/test", test)
		if !done.Follow().HasText("A test event is on its way") || done.Header.Get("Location") != log {
			t.Fatalf("%d %v %s", done.Status, done.Header, done.Text())
		}
	}
	const tests = "select count(*) from account.webhook_deliveries where cause = 'test' and tried_at is null"
	if n := site.Count(tests); n != 1 {
		t.Errorf("%d tests wait", n)
	}
	site.Fixture.Exec(`insert into account.webhook_deliveries
		(id, webhook_id, cause, type, sequence, tried_at, status, problem) values
			($1, $2, 'event', 'programme.created', 7, now(), 500, 'The endpoint answered with status 500.'),
			($3, $2, 'event', 'submission.created', 8, now(), 200, null)`, uuid.New(), id, uuid.New())
	shown := browser.Get(log)
	for _, words := range []string{"Waiting", "status 500", "Event 7", "Accepted", "Test event", "Show results"} {
		if !shown.HasText(words) {
			t.Errorf("the log has no %q: %s", words, shown.Text())
		}
	}
	resend := func(eventType string) *browsertest.Page {
		form := browser.Get(log).Form(webhooks + "/resend")
		var delivery string
		site.Fixture.Read("select id::text from account.webhook_deliveries where tried_at is not null and type = '"+
			eventType+"'", &delivery)
		form.Set("delivery", delivery)
		return browser.Post(webhooks+"/resend", form)
	}
	done := resend("programme.created")
	if done.Location() != log || !done.Follow().HasText("The event is on its way") {
		t.Errorf("%s %s", done.Location(), done.Text())
	}
	if done := resend("submission.created"); done.Status != http.StatusForbidden {
		t.Errorf("an event that the user may not read: %d", done.Status)
	}
	const resent = "select count(*) from account.webhook_deliveries where cause = 'resend' and sequence = 7"
	if n := site.Count(resent); n != 1 {
		t.Errorf("%d events are sent again", n)
	}

	browser.Post(webhooks+"/disable", browser.Get(log).Form(webhooks+"/disable"))
	if page := browser.Get(log); !strings.Contains(page.Body, "Disabled on <time ") || page.HasText("Send again") {
		t.Error(page.Text())
	}
	browser.Post(webhooks+"/enable", browser.Get(log).Form(webhooks+"/enable"))
	if page := browser.Get(log); page.HasText("Disabled on") {
		t.Error(page.Text())
	}
	browser.Post(webhooks+"/delete", browser.Get(log).Form(webhooks+"/delete"))
	page = browser.Get(log)
	if page.Status != http.StatusNotFound || !browser.Get(hooks).HasText("No endpoints") {
		t.Errorf("%d %s", page.Status, page.Text())
	}
	actions := []string{audit.WebhookAdded, audit.WebhookDisabled, audit.WebhookEnabled, audit.WebhookDeleted}
	if n := site.Count("select count(*) from account.audit_events where user_id = $1 and action = any ($2)",
		ada.ID, actions); n != 4 {
		t.Errorf("%d events in the audit log", n)
	}
}

// A user gets 404 for an endpoint of another workspace, and cannot enable an endpoint for events that the user may not
// read.
func TestWebhooks_UserCannotUseOtherUsersEndpoints(t *testing.T) {
	t.Parallel()
	site, _ := hookSite(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	elsewhere, here := uuid.New(), uuid.New()
	owner := site.Member(perm.AccountAPIAccess)
	for id, workspaceID := range map[uuid.UUID]uuid.UUID{
		elsewhere: site.Fixture.Workspace("Elsewhere"),
		here:      site.Fixture.WorkspaceID,
	} {
		site.Fixture.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key,
			position, created_at, enabled, reason, disabled_at)
			values ($1, $2, $3, 'https://hooks.example.invalid/', '{submission.created}', '', '',
				0, now(), false, 'user', now())`, id, workspaceID, owner.ID)
	}
	log := developers + "/webhook?tenant=" + site.Fixture.WorkspaceID.String() + "&id="
	own := log + here.String()
	log += elsewhere.String()
	if page := browser.Get(log); page.Status != http.StatusNotFound || page.HasText("hooks.example") {
		t.Errorf("%d %s", page.Status, page.Text())
	}
	for _, what := range []string{"delete", "disable", "enable", "test", "resend"} {
		form := browser.Get(own).Form(webhooks + "/delete")
		form.Set("id", elsewhere.String())
		form.Set("delivery", uuid.NewString())
		page := browser.Post(webhooks+"/"+what, form).Follow()
		if !page.HasText("The endpoint no longer exists.") {
			t.Errorf("%s: %s", what, page.Text())
		}
	}
	form := browser.Get(own).Form(webhooks + "/enable")
	if page := browser.Post(webhooks+"/enable", form).Follow(); !page.HasText("The endpoint was not enabled.") {
		t.Error(page.Text())
	}
	form.Set("id", here.String())
	if page := browser.Post(webhooks+"/secret", form).Follow(); !page.HasText("The secret was not replaced.") {
		t.Error(page.Text())
	}
	if n := site.Count("select count(*) from account.webhooks where former_secret is not null"); n != 0 {
		t.Errorf("%d secrets were replaced", n)
	}
	if n := site.Count("select count(*) from account.webhooks where not enabled"); n != 2 {
		t.Errorf("%d endpoints are as before", n)
	}
}

// A form replaces the secret once, after the user has reauthenticated. The previous secret stays valid for a day.
func TestWebhooks_SecretIsReplaced(t *testing.T) {
	site, keys := hookSite(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	form := webhookForm(browser.Get(newHook), "https://hooks.example.invalid/", "programme.created")
	page := browser.Post(webhooks, form)
	first, id := webhookSecret.FindString(html.UnescapeString(page.Body)), uuid.MustParse(hookID(t, page))
	log := developers + "/webhook?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" + id.String()
	form = browser.Get(log).Form(webhooks + "/secret")
	page = browser.Post(webhooks+"/secret", form)
	second := webhookSecret.FindString(html.UnescapeString(page.Body))
	if page.Status != http.StatusOK || second == "" || second == first {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	var now, former webhook.Sealed
	site.Fixture.Read(`select secret, secret_key, former_secret, former_secret_key from account.webhooks
		where former_until between now() + interval '23 hours' and now() + interval '25 hours'`,
		&now.Secret, &now.Key, &former.Secret, &former.Key)
	for secret, sealed := range map[string]webhook.Sealed{first: former, second: now} {
		if opened, err := keys.Open(id, sealed); err != nil || opened.Reveal() != secret {
			t.Errorf("%v", err)
		}
	}
	again := browser.Post(webhooks+"/secret", form)
	if strings.Contains(again.Body, "whsec_") || !again.HasText("already replaced") {
		t.Errorf("the same form again: %s", again.Text())
	}
	if n := site.Count("select count(*) from account.audit_events where action = $1 and user_id = $2",
		audit.WebhookSecretReplaced, ada.ID); n != 1 {
		t.Errorf("%d events", n)
	}
}

// A user who signed in some time ago must reauthenticate to add an endpoint or to replace its secret.
func TestWebhooks_SecretNeedsReauthentication(t *testing.T) {
	site, _ := hookSite(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	browser.Post(webhooks, webhookForm(browser.Get(newHook), "https://hooks.example.invalid/", "programme.created"))
	log := developers + "/webhook?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" + hookID(t, browser.Get(hooks))
	site.Wait(11 * time.Minute)
	form := webhookForm(browser.Get(newHook), "https://other.example.invalid/", "programme.created")
	page := browser.Post(webhooks, form)
	if page.Status != http.StatusBadRequest || !page.HasText("Enter your password to continue.") ||
		page.Form(webhooks).Get("url") != "https://other.example.invalid/" {
		t.Errorf("added without a password: %d %s", page.Status, page.Text())
	}
	page = browser.Post(webhooks+"/secret", browser.Get(log).Form(webhooks+"/secret"))
	if page.Status != http.StatusBadRequest || !page.HasText("The secret was not replaced.") {
		t.Errorf("replaced without a password: %d %s", page.Status, page.Text())
	}
	if n := site.Count("select count(*) from account.webhooks where former_secret is null"); n != 1 {
		t.Errorf("%d endpoints are as before", n)
	}
	form = page.Form(webhooks + "/secret")
	form.Set("password", browsertest.Password)
	if page = browser.Post(webhooks+"/secret", form); webhookSecret.FindString(html.UnescapeString(page.Body)) == "" {
		t.Errorf("with the password: %d %s", page.Status, page.Text())
	}
}
