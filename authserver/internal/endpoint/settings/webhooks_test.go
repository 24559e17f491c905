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

// publishedKey publishes the key of resourceapi, the same each time.
func publishedKey(t *testing.T, site *browsertest.Server) *webhook.Keys {
	t.Helper()
	keys, err := webhook.NewKeys(seal.NewKeys([]byte("0123456789abcdef0123456789abcdef")))
	must(t, err)
	site.Fixture.Exec("insert into account.webhook_keys (public_key) values ($1) on conflict do nothing", keys.Public())
	return keys
}

func hookSite(t *testing.T) *browsertest.Server {
	t.Helper()
	site := shared(t)
	publishedKey(t, site)
	return site
}

// webhookForm returns the filled-in form for a new endpoint.
func webhookForm(page *browsertest.Page, address string, types ...string) url.Values {
	form := page.Form(webhooks)
	form.Set("url", address)
	form["types"] = types
	return form
}

var webhookSecret = regexp.MustCompile(`whsec_[A-Za-z0-9+/]{43}=`)

// postHook sends the filled-in form for a new endpoint.
func postHook(browser *browsertest.Browser, address string, types ...string) *browsertest.Page {
	return browser.Post(webhooks, webhookForm(browser.Get(newHook), address, types...))
}

// hookURL is the address of an endpoint. Nothing is sent to it.
const hookURL = "https://hooks.example.invalid/"

// addHook adds an endpoint and returns its page, and the path of its log.
func addHook(t *testing.T, site *browsertest.Server, browser *browsertest.Browser) (*browsertest.Page, string) {
	t.Helper()
	page := postHook(browser, hookURL, "programme.created").Wants(http.StatusOK)
	return page, hookLog(site, hookID(t, page))
}

// hookLog returns the path of an endpoint's log.
func hookLog(site *browsertest.Server, id string) string {
	return developers + "/webhook?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" + id
}

// hookID returns the id of the only endpoint in the list.
func hookID(t *testing.T, page *browsertest.Page) string {
	t.Helper()
	_, id, _ := strings.Cut(page.Link(developers+"/webhook?"), "&id=")
	return id
}

func TestWebhooks_SecretIsShownOnceAndSealed(t *testing.T) {
	site, ada, browser := inSettings(t, perm.ProgrammesRead)
	keys := publishedKey(t, site)
	const address = "https://hooks.example.invalid/almoner?key=1"
	form := webhookForm(browser.Get(newHook), " "+address+" ", "programme.created", "connection.ended")
	page := browser.Post(webhooks, form)
	secret := webhookSecret.FindString(html.UnescapeString(page.Body))
	if page.Status != http.StatusOK || secret == "" || !page.HasText(address) {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	id := uuid.MustParse(hookID(t, page))
	site.Rows(1, "webhooks", `id = $1 and user_id = $2 and enabled and url = $3
		and types = '{programme.created,connection.ended}'`, id, ada.ID, address)
	site.Rows(1, "audit_events", `action = $1 and subject = $2 and user_id = $3
		and detail = '{"host": "hooks.example.invalid"}'`, audit.WebhookAdded, "webhook:"+id.String(), ada.ID)
	var sealed webhook.Sealed
	site.Fixture.Read("select secret, secret_key from account.webhooks where id = '"+id.String()+"'", &sealed.Secret,
		&sealed.Key)
	if opened, err := keys.Open(id, sealed); err != nil || opened.Reveal() != secret {
		t.Errorf("%q, %v; shown %q", opened.Reveal(), err, secret)
	}
	browser.Post(webhooks, form).Says("already added").Omits("whsec_")
	site.Rows(1, "webhooks", "")
	browser.Get(hooks).Omits("whsec_")
	if strings.Contains(site.Log.String(), secret) || strings.Contains(site.Log.String(), "key=1") {
		t.Error("the secret or the URL is in the log")
	}
}

func TestWebhooks_BadFormKeepsInput(t *testing.T) {
	site := hookSite(t)
	browser, created := site.SignedIn(developer(site, perm.ProgrammesRead)), []string{"programme.created"}
	for name, c := range map[string]struct {
		address string
		types   []string
		words   string
	}{
		"no https":        {"http://hooks.example.invalid/", created, "begins with https://"},
		"this machine":    {"https://127.1:8443/", created, "usual spelling"},
		"a private host":  {"https://10.0.0.1/", created, "The host must be public"},
		"no kind":         {hookURL, nil, "Choose at least one event"},
		"an unknown kind": {hookURL, []string{"x.y"}, "events that you may read"},
		"not readable":    {hookURL, []string{created[0], "submission.created"}, "events that you may read"},
	} {
		page := postHook(browser, c.address, c.types...).As(name)
		page.Wants(http.StatusBadRequest, "The endpoint was not added.", c.words)
		offered := slices.DeleteFunc(slices.Clone(c.types), func(one string) bool { return one != created[0] })
		page.Keeps(webhooks, "url", c.address, "types", strings.Join(offered, " "))
	}
	browser.Get(newHook).Lacks("submission.created")
	site.Rows(0, "webhooks", "")
}

func TestWebhooks_LimitPerWorkspaceAndMissingKey(t *testing.T) {
	site := own(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	add := func() *browsertest.Page { return postHook(browser, hookURL, "programme.created") }
	add().Wants(http.StatusServiceUnavailable, "not available yet")
	publishedKey(t, site)
	add().Wants(http.StatusOK)
	site.Fixture.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position,
			created_at)
		select gen_random_uuid(), $1, $2, 'https://a.example/', '{programme.created}', '', '', 0, now()
		from generate_series(1, 18)`, site.Fixture.WorkspaceID, ada.ID)
	add().Wants(http.StatusOK)
	add().Wants(http.StatusConflict, "which is the maximum")
}

func TestWebhooks_ChangeAndLog(t *testing.T) {
	site := hookSite(t)
	ada := developer(site, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	page, log := addHook(t, site, browser)
	id := hookID(t, page)
	test := browser.Get(log).Form(webhooks + "/test")
	for range 2 { // the same form sent twice sends one event
		done := browser.Post(webhooks+"/test", test)
		done.LeadsTo(log).Follow().Says("A test event is on its way")
	}
	const deliveries = "select count(*) from account.webhook_deliveries where webhook_id = $1 and cause = "
	site.CountIs(1, deliveries+"'test' and tried_at is null", id)
	site.Fixture.Exec(`insert into account.webhook_deliveries
		(id, webhook_id, cause, type, sequence, tried_at, status, problem) values
			($1, $2, 'event', 'programme.created', 7, now(), 500, 'The endpoint answered with status 500.'),
			($3, $2, 'event', 'submission.created', 8, now(), 200, null)`, uuid.New(), id, uuid.New())
	browser.Get(log).Says("Waiting", "Status 500", "Event 7", "Accepted", "Test event", "Show results")
	resend := func(eventType string) *browsertest.Page {
		var delivery string
		site.Fixture.Read("select id::text from account.webhook_deliveries where tried_at is not null and type = '"+
			eventType+"' and webhook_id = '"+id+"'", &delivery)
		return browser.Get(log).Send(webhooks+"/resend", browsertest.Fields{"delivery": delivery})
	}
	resend("programme.created").LeadsTo(log).Follow().Says("The event is on its way")
	resend("submission.created").Wants(http.StatusForbidden)
	site.CountIs(1, deliveries+"'resend' and sequence = 7", id)

	browser.Get(log).Send(webhooks+"/disable", nil)
	browser.Get(log).Lacks("Send again").Contains("Disabled on <time ")
	browser.Get(log).Send(webhooks+"/enable", nil)
	browser.Get(log).Lacks("Disabled on")
	browser.Get(log).Send(webhooks+"/delete", nil)
	browser.Get(log).Wants(http.StatusNotFound)
	browser.Get(hooks).Says("No endpoints")
	actions := []string{audit.WebhookAdded, audit.WebhookDisabled, audit.WebhookEnabled, audit.WebhookDeleted}
	site.Rows(4, "audit_events", "user_id = $1 and action = any ($2)", ada.ID, actions)
}

// A user gets 404 for an endpoint of another workspace, and cannot enable an endpoint for events that the user may not
// read.
func TestWebhooks_UserCannotUseOtherUsersEndpoints(t *testing.T) {
	site := hookSite(t)
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
	own := hookLog(site, here.String())
	browser.Get(hookLog(site, elsewhere.String())).Wants(http.StatusNotFound).Lacks("hooks.example")
	for _, what := range []string{"delete", "disable", "enable", "test", "resend"} {
		form := browser.Get(own).Form(webhooks + "/delete")
		form = with(form, "id", elsewhere.String(), "delivery", uuid.NewString())
		browser.Post(webhooks+"/"+what, form).Follow().Says("The endpoint no longer exists.")
	}
	form := browser.Get(own).Form(webhooks + "/enable")
	browser.Post(webhooks+"/enable", form).Follow().
		Says("The endpoint was not enabled, because it gets events that you may not read in this workspace.")
	browser.Post(webhooks+"/secret", form).Follow().Says("The secret was not replaced.")
	site.CountIs(2, `select count(*) from account.webhooks
		where not enabled and former_secret is null and user_id = $1`, owner.ID)
}

// A form replaces the secret once, after the user has reauthenticated. The previous secret stays valid for a day.
func TestWebhooks_SecretIsReplaced(t *testing.T) {
	site, ada, browser := inSettings(t, perm.ProgrammesRead)
	keys := publishedKey(t, site)
	page, log := addHook(t, site, browser)
	first, id := webhookSecret.FindString(html.UnescapeString(page.Body)), uuid.MustParse(hookID(t, page))
	form := browser.Get(log).Form(webhooks + "/secret")
	page = browser.Post(webhooks+"/secret", form)
	second := webhookSecret.FindString(html.UnescapeString(page.Body))
	if page.Status != http.StatusOK || second == "" || second == first {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	var now, former webhook.Sealed
	site.Fixture.Read(`select secret, secret_key, former_secret, former_secret_key from account.webhooks
		where former_until between now() + interval '23 hours' and now() + interval '25 hours'
		and id = '`+id.String()+"'", &now.Secret, &now.Key, &former.Secret, &former.Key)
	for secret, sealed := range map[string]webhook.Sealed{first: former, second: now} {
		if opened, err := keys.Open(id, sealed); err != nil || opened.Reveal() != secret {
			t.Errorf("%v", err)
		}
	}
	browser.Post(webhooks+"/secret", form).Says("already replaced").Omits("whsec_")
	site.Rows(1, "audit_events", "action = $1 and user_id = $2", audit.WebhookSecretReplaced, ada.ID)
}

// A user who signed in some time ago must reauthenticate to add an endpoint or to replace its secret.
func TestWebhooks_SecretNeedsReauthentication(t *testing.T) {
	site := own(t)
	publishedKey(t, site)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	_, log := addHook(t, site, browser)
	site.Wait(11 * time.Minute)
	postHook(browser, "https://other.example.invalid/", "programme.created").As("added without a password").
		Wants(http.StatusBadRequest, "Enter your password to continue.").
		Keeps(webhooks, "url", "https://other.example.invalid/")
	page := browser.Get(log).Send(webhooks+"/secret", nil)
	page.Wants(http.StatusBadRequest, "The secret was not replaced.")
	site.Rows(1, "webhooks", "former_secret is null")
	page.Send(webhooks+"/secret", browsertest.Fields{"password": browsertest.Password}).
		Wants(http.StatusOK).Contains("whsec_")
}

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
	form := webhookForm(browser.Get(newHook), hookURL, "submission.created")
	page := browser.Post(webhooks, with(form, "personal", "yes"))
	page.Wants(http.StatusOK, "With personal data")
	browser.Get(hookLog(site, hookID(t, page))).Says("With personal data: names")
	personal(1, ada)
	log := hookLog(site, hookID(t, page))
	change := func(as *browsertest.Browser) *browsertest.Page {
		return as.Get(log).Send(webhooks+"/personal-data", nil).Follow()
	}
	change(browser).Says("now sent without personal data").Lacks("With personal data")
	personal(0, ada)
	change(browser).Says("now sent with personal data", "With personal data")
	personal(1, ada)
	bobs := site.SignedIn(bob)
	bobs.Get(log).Send(webhooks+"/disable", nil)
	bobs.Get(log).Send(webhooks+"/enable", nil)
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
	const personal = webhooks + "/personal-data"
	site.SignedIn(bob).Get(log).Send(personal, nil).Follow().Says("events that you may not read")
	site.Rows(0, "webhooks", included)
	browser := site.SignedIn(ada)
	site.Wait(11 * time.Minute)
	page := browser.Get(log).Send(personal, nil)
	page.As("without a password").Wants(http.StatusBadRequest, "Nothing was changed.")
	site.Rows(0, "webhooks", included)
	form := with(page.Form(personal), "password", browsertest.Password)
	browser.Post(personal, form)
	site.Rows(1, "webhooks", included)
	browser.Post(personal, with(form, "id", uuid.NewString())).Follow().Says("no longer exists")
}

// delivered inserts a delivery to an endpoint, and returns the path of its page.
func delivered(site *browsertest.Server, endpoint, columns, values string) string {
	id := uuid.NewString()
	site.Fixture.Exec(`insert into account.webhook_deliveries (id, webhook_id, tried_at, `+columns+`)
		values ($1, $2, now(), `+values+`)`, id, endpoint)
	return hooks + "/delivery?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" + endpoint + "&delivery=" + id
}

// The page of a delivery shows what was sent and what came back, as text, to those who may read the event.
func TestWebhooks_DeliveryShowsRequestAndResponse(t *testing.T) {
	site := own(t)
	publishedKey(t, site)
	ada, bob := developer(site, perm.ProgrammesRead), developer(site)
	browser := site.SignedIn(ada)
	page, log := addHook(t, site, browser)
	endpoint, workspace := hookID(t, page), site.Fixture.WorkspaceID.String()
	const subject = "0199a1c2-7f41-7c55-8b9e-3a4f5d6e7f10"
	site.Fixture.Exec(`insert into account.events (tenant_id, type, data, sequence)
		values ($1, 'programme.created', jsonb_build_object('id', $2::text), 7007)`, workspace, subject)
	const event = "cause, type, sequence, status, problem, took_ms, sent_at, signature, personal, response"
	failed := delivered(site, endpoint, event, `'event', 'programme.created', 7007, 500, 'It failed.', 84,
		'2026-11-30T12:00:00Z', 'v1,c2lnbmF0dXJl', false, convert_to('<b>no</b> ', 'UTF8') || '\x00ff'::bytea`+
		` || convert_to(U&'\202E', 'UTF8')`)
	browser.Get(failed).Wants(http.StatusOK, "Failed", "It failed.", "84 ms", "Next attempt",
		"webhook-id: evt_"+workspace+"_7007", "webhook-timestamp: 1796040000", "webhook-signature: v1,c2lnbmF0dXJl",
		`"id": "`+subject+`"`, `"sequence": 7007`, `<b>no</b> \x00\xff\u202e`, "shown as escapes").
		Contains("&lt;b&gt;no", `{&#34;type&#34;:&#34;programme.created&#34;,&#34;timestamp&#34;`).Omits("whsec_")
	site.Fixture.Exec("update account.webhooks set position = 7007 where id = $1", endpoint)
	browser.Get(failed).Lacks("Next attempt")
	site.SignedIn(bob).Get(failed).Wants(http.StatusOK, "you need the permission to read events of this type").
		Lacks(subject, "</b>", "webhook-signature")
	for name, c := range map[string]struct{ values, want, lacks string }{
		"test": {`'test', 'webhook.test', null, 204, null, 3, now(), 'v1,x', false, ''`, "had no body", "first 1,024"},
		"long": {`'event', 'programme.created', 7007, 200, null, 3, now(), 'v1,x', false,
			substring(convert_to(repeat('a', 1023) || 'é', 'UTF8') from 1 for 1024)`, "first 1,024 bytes", "escapes"},
		"personal": {`'event', 'programme.created', 7007, 200, null, 3, now(), 'v1,x', true, null`,
			"The body is not stored, because the request had personal data", "Payload as sent"},
		"an old event": {`'event', 'programme.created', 6, 200, null, 3, null, null, false, null`,
			"The event is no longer stored", "webhook-signature"},
		"no response": {`'event', 'programme.created', 7007, null, 'The connection failed.', 3, now(), 'v1,x', false,
			null`, "There was no response.", "had no body"},
	} {
		browser.Get(delivered(site, endpoint, event, c.values)).As(name).Says(c.want).Lacks(c.lacks)
	}
	browser.Get(strings.Replace(failed, "delivery=", "delivery=x", 1)).Wants(http.StatusNotFound)
	for range 6 {
		delivered(site, endpoint, event, `'event', 'programme.created', 7007, 200, null, 3, now(), 'v1,x', false, null`)
	}
	browser.Get(log).Says("Show 2 older")
}

// The events of an endpoint are changed, or all that its user may read, which a release that only knows their types
// sends too. The user who changes them becomes its user.
func TestWebhooks_EventsAreChanged(t *testing.T) {
	site := own(t)
	publishedKey(t, site)
	ada := developer(site, perm.ProgrammesRead)
	bob := developer(site, perm.ProgrammesRead, perm.EngageReadSubmissions)
	browser, bobs := site.SignedIn(ada), site.SignedIn(bob)
	form := with(webhookForm(browser.Get(newHook), hookURL), "events", "all")
	page := browser.Post(webhooks, form)
	page.Wants(http.StatusOK, "All events")
	id := hookID(t, page)
	stored := func(user browsertest.Person, all bool, types string) {
		t.Helper()
		site.Rows(1, "webhooks", "user_id = $1 and all_types = $2 and types = $3::text[] and id = $4", user.ID, all,
			types, id)
	}
	const adas = "{programme.created,programme.updated,programme.deleted,connection.approved,connection.ended}"
	stored(ada, true, adas)
	log := hookLog(site, id)
	edit := hooks + "/events" + strings.TrimPrefix(log, developers+"/webhook")
	const events = webhooks + "/events"
	site.Fixture.Exec(`update account.webhooks set personal_data_for = user_id, token_id = gen_random_uuid()
		where id = $1`, id)
	change := func(as *browsertest.Browser, choice string, types ...string) *browsertest.Page {
		form := as.Get(edit).Form(events)
		form["events"], form["types"] = []string{choice}, types
		return as.Post(events, form)
	}
	browser.Get(edit).Says("it becomes yours")
	change(browser, "some").Wants(http.StatusBadRequest, "Nothing was changed.", "Choose at least one event")
	change(browser, "some", "submission.created").Wants(http.StatusBadRequest, "events that you may read")
	stored(ada, true, adas)
	change(bobs, "some", "programme.created", "submission.created").LeadsTo(log).Follow().
		Says("The events were changed.", "programme.created", "submission.created")
	stored(bob, false, "{programme.created,submission.created}")
	site.Rows(1, "webhooks", "personal_data_for is null and token_id is null")
	browser.Get(edit).Says("events that you may not read: submission.created")
	bobs.Get(edit).Lacks("may not read: ", "it becomes yours")
	change(browser, "all").LeadsTo(log)
	stored(ada, true, adas)
	site.Rows(2, "audit_events", "action = $1", audit.WebhookChanged)
	browser.Get("/settings/audit?tenant="+site.Fixture.WorkspaceID.String()).Says(
		"Changed a webhook endpoint at hooks.example.invalid: it gets all events without personal data",
		"it gets programme.created, submission.created without personal data")
	site.Wait(11 * time.Minute)
	change(bobs, "some", "programme.created").As("without a password").
		Wants(http.StatusBadRequest, "Enter your password to continue.")
}
