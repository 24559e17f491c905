package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Contract, section 6: each rule for public forms, tested against the two binaries.

const website = "https://www.canal-lane.example"

// newForm creates a form in the workspace that one website may use, and returns it with its public path.
func newForm(t *testing.T, p *harness.Product, ws harness.TestWorkspace) (client.Form, string) {
	t.Helper()
	form, err := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Forms.Create(t.Context(), client.NewForm{
		Title: "Volunteer", AllowedOrigins: []string{website}, Fields: []client.Field{
			{Name: "name", Label: "Your name", Type: "text", Required: true},
			{Name: "email", Label: "E-mail", Type: "email", Required: true},
			{Name: "area", Label: "Where", Type: "select", Options: []string{"Kitchen", "Garden"}},
			{Name: "privacy", Label: "I agree that my answers are kept for a year.", Type: "consent", Required: true},
		},
	})
	if err != nil {
		t.Fatal(redactError(err))
	}
	return form, "/v1/engage/public/forms/" + form.EmbedKey
}

func helper() map[string]any {
	return map[string]any{"name": "Ada Okafor", "email": "ada@example.org", "privacy": true}
}

func submissions(t *testing.T, p *harness.Product, form client.Form) int {
	t.Helper()
	return p.Database.Count(t, `select count(*) from resource.submissions where form_id = $1`, form.ID)
}

// "An Origin header that the form does not allow: 403", and CORS for the allowed ones only.
func TestForms_OnlyAllowedOrigins(t *testing.T) {
	t.Parallel()
	p := enter(t)
	form, path := newForm(t, p, p.NewWorkspace(t))
	for _, origin := range []string{
		"https://elsewhere.example",
		"null",
		website + ":8443",
		"http://www.canal-lane.example",
		p.BaseURL,
	} {
		api := p.API().With("Origin", origin)
		for _, refusal := range []harness.Answer{
			api.Get(t, path),
			api.Send(t, http.MethodOptions, path+"/submissions", "", ""),
			api.JSON(t, http.MethodPost, path+"/submissions", map[string]any{}),
		} {
			refusal.WantsHeader(t, "Access-Control-Allow-Origin", "").WantsNested(t, http.StatusForbidden, "FORBIDDEN")
		}
	}
	api := p.API().With("Origin", website)
	api.Get(t, path).Wants(t, http.StatusOK).WantsHeader(t, "Access-Control-Allow-Origin", website).
		WantsKeys(t, "title", "fields", "submissionToken")
	preflight := api.With("Access-Control-Request-Method", "POST").
		Send(t, http.MethodOptions, path+"/submissions", "", "").
		Wants(t, http.StatusNoContent)
	preflight.WantsHeader(t, "Access-Control-Allow-Origin", website).
		WantsHeader(t, "Access-Control-Allow-Headers", "Content-Type, Idempotency-Key")
	page := p.API().Get(t, path+"/embed").Wants(t, http.StatusOK)
	if policy := page.Header.Get("Content-Security-Policy"); !strings.HasSuffix(policy, "frame-ancestors "+website) {
		t.Errorf("Content-Security-Policy is %q", policy)
	}
	if n := submissions(t, p, form); n != 0 {
		t.Errorf("%d submissions stored, want 0", n)
	}
}

// "Bad answers: 400 VALIDATION_ERROR with error.fields, name → message", and nothing stored.
func TestForms_InvalidAnswersAreRejectedPerField(t *testing.T) {
	t.Parallel()
	p := enter(t)
	form, path := newForm(t, p, p.NewWorkspace(t))
	bad := submit(t, p.API(), path,
		map[string]any{"name": "", "email": "ada", "area": "Roof", "privacy": false, "extra": "x"})
	bad.WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	fields, _ := bad.Object(t)["error"].(map[string]any)["fields"].(map[string]any)
	for _, name := range []string{"name", "email", "area", "privacy", "extra"} {
		if message, _ := fields[name].(string); message == "" {
			t.Errorf("no message for %s:\n%s", name, bad)
		}
	}
	if len(fields) != 5 || submissions(t, p, form) != 0 {
		t.Errorf("%d messages, %d submissions stored", len(fields), submissions(t, p, form))
	}
}

// "A used submissionToken: 409; an expired, forged or another form's: 400."
func TestForms_SubmissionTokenIsForOneSubmission(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	form, path := newForm(t, p, ws)
	_, other := newForm(t, p, ws)
	token, _ := p.API().Get(t, path).Object(t)["submissionToken"].(string)
	send := func(path string, token any) harness.Answer {
		return p.API().
			JSON(t, http.MethodPost, path+"/submissions", map[string]any{"submissionToken": token, "answers": helper()})
	}
	for _, forged := range []any{"", nil, 7, "x", token[:len(token)-1], alterLast(token), strings.Repeat("x", 5000)} {
		send(path, forged).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	}
	send(other, token).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	send(path, token).Wants(t, http.StatusAccepted).WantsKeys(t, "id", "status", "statusUrl")
	send(path, token).WantsNested(t, http.StatusConflict, "CONFLICT")
	if n := submissions(t, p, form); n != 1 {
		t.Errorf("%d submissions stored, want 1", n)
	}
}

// "The same Idempotency-Key with the same body gives the first answer again, before any other check; with another body:
// 409."
func TestForms_IdempotencyKeyStoresOneSubmission(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	form, path := newForm(t, p, ws)
	body := map[string]any{"submissionToken": p.API().Get(t, path).Object(t)["submissionToken"], "answers": helper()}
	api := p.API().With("Idempotency-Key", uuid.NewString())
	first := api.JSON(t, http.MethodPost, path+"/submissions", body).Wants(t, http.StatusAccepted)
	forms := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Forms
	again := func(when string) {
		t.Helper()
		if answer := api.JSON(t, http.MethodPost, path+"/submissions", body); answer.Status != http.StatusAccepted ||
			string(answer.Body) != string(first.Body) {
			t.Errorf("%s:\n%s", when, answer)
		}
	}
	again("at once")
	if _, err := forms.Update(t.Context(), form.ID, client.FormChange{Enabled: new(false)}); err != nil {
		t.Fatal(redactError(err))
	}
	again("after the form was closed")
	if _, err := forms.Update(t.Context(), form.ID, client.FormChange{Enabled: new(true)}); err != nil {
		t.Fatal(redactError(err))
	}
	body["answers"] = map[string]any{"name": "Somebody else"}
	api.JSON(t, http.MethodPost, path+"/submissions", body).WantsNested(t, http.StatusConflict, "CONFLICT")
	if n := submissions(t, p, form); n != 1 {
		t.Errorf("%d submissions stored, want 1", n)
	}
}

// "Unknown or disabled key, or Engage not enabled in its workspace: 404."
func TestForms_UnavailableFormIsNotFound(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	form, path := newForm(t, p, ws)
	gone := func(path string) {
		t.Helper()
		p.API().Get(t, path).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
		p.API().With("Origin", website).JSON(t, http.MethodPost, path+"/submissions", map[string]any{}).
			WantsHeader(t, "Access-Control-Allow-Origin", "").WantsNested(t, http.StatusNotFound, "NOT_FOUND")
		p.API().Get(t, path+"/embed").Wants(t, http.StatusNotFound)
	}
	gone("/v1/engage/public/forms/alm_embed_unknown")
	forms := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Forms
	for _, enabled := range []bool{false, true} {
		if _, err := forms.Update(t.Context(), form.ID, client.FormChange{Enabled: &enabled}); err != nil {
			t.Fatal(redactError(err))
		}
		if !enabled {
			gone(path)
		}
	}
	p.API().Get(t, path).Wants(t, http.StatusOK)
	p.Database.Exec(t, `update account.tenant_modules set enabled = false where tenant_id = $1 and module = 'engage'`,
		ws.Workspace.ID)
	gone(path)
	_, err := forms.Get(t.Context(), form.ID)
	refused(t, err, http.StatusForbidden, client.Nested, client.CodeModuleNotEnabled)
}

// "More than 120 submissions a minute for one form from one address: 429 RATE_LIMITED, Retry-After."
func TestForms_RateLimitPerAddressAndForm(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	_, path := newForm(t, p, ws)
	_, other := newForm(t, p, ws)
	for range 120 {
		p.API().JSON(t, http.MethodPost, path+"/submissions", map[string]any{}).
			WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	}
	p.API().JSON(t, http.MethodPost, path+"/submissions", map[string]any{}).WantsRetryAfter(t).
		WantsNested(t, http.StatusTooManyRequests, "RATE_LIMITED")
	p.API().JSON(t, http.MethodPost, other+"/submissions", map[string]any{}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
}

// "token is a read-only capability for this one status"
func TestForms_StatusNeedsItsToken(t *testing.T) {
	t.Parallel()
	p := enter(t)
	_, path := newForm(t, p, p.NewWorkspace(t))
	var accepted [2]string
	for i := range accepted {
		url, _ := submit(t, p.API(), path, helper()).Wants(t, http.StatusAccepted).Object(t)["statusUrl"].(string)
		accepted[i] = strings.TrimPrefix(url, p.BaseURL)
		p.API().Get(t, accepted[i]).Wants(t, http.StatusOK).WantsKeys(t, "id", "status", "reasons")
	}
	p.API().Get(t, accepted[0]+"&captcha=1").WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	one, token, _ := strings.Cut(accepted[0], "?token=")
	two, _, _ := strings.Cut(accepted[1], "?token=")
	for _, without := range []string{
		one,
		one + "?token=",
		one + "?token=" + alterLast(token),
		two + "?token=" + token,
		"/v1/engage/public/submissions/" + uuid.NewString() + "?token=" + token,
	} {
		p.API().Get(t, without).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	}
}

// "For the workspace: … (engage:read:forms, engage:write:forms, engage:read:submissions)."
func TestForms_NeedPermissions(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	form, _ := newForm(t, p, ws)
	ctx := t.Context()
	routes := []struct {
		needs string
		call  func(client.Forms) error
	}{
		{harness.ReadForms, func(f client.Forms) error {
			for _, err := range f.List(ctx) {
				return err
			}
			return nil
		}},
		{harness.ReadForms, func(f client.Forms) error { _, err := f.Get(ctx, form.ID); return err }},
		{harness.WriteForms, func(f client.Forms) error {
			_, err := f.Update(ctx, form.ID, client.FormChange{Title: new("Volunteer")})
			return err
		}},
		{harness.WriteForms, func(f client.Forms) error {
			_, err := f.Create(ctx,
				client.NewForm{Title: "x", Fields: []client.Field{{Name: "a", Label: "A", Type: "text"}}})
			return err
		}},
		{harness.ReadSubmissions, func(f client.Forms) error {
			for _, err := range f.Submissions(ctx, form.ID) {
				return err
			}
			return nil
		}},
	}
	for _, held := range []string{harness.ReadForms, harness.WriteForms, harness.ReadSubmissions} {
		forms := p.Client(t, ws.Workspace, harness.Bearer(p.Database.Token(t, ws.Workspace, ws.Owner, held))).Forms
		for i, route := range routes {
			err := route.call(forms)
			if route.needs != held {
				refused(t, err, http.StatusForbidden, client.Nested, client.CodeForbidden)
			} else if err != nil {
				t.Errorf("route %d with %s: %v", i, held, redactError(err))
			}
		}
	}
	other := p.NewWorkspace(t)
	_, err := p.Client(t, other.Workspace, harness.Bearer(other.Token)).Forms.Get(ctx, form.ID)
	refused(t, err, http.StatusNotFound, client.Nested, client.CodeNotFound)
}

// The form works without script: on a phone it is corrected and sent, and shows its result.
func TestBrowser_SubmitsFormWithoutScript(t *testing.T) {
	t.Parallel()
	p := enter(t)
	form, path := newForm(t, p, p.NewWorkspace(t))
	browser := newBrowser(t, p, harness.Telephone)
	browser.WithoutScript()
	browser.Open(p.BaseURL + path + "/embed")
	browser.Fill("#f0", "Ada Okafor")
	browser.Click("button[type=submit]")
	browser.See(".alert")
	if shown := browser.Text(); !strings.Contains(shown, "Please correct 2 answers") {
		t.Errorf("%s", shown)
	}
	browser.Fill("#f1", "ada@example.org")
	browser.Click("#f3")
	time.Sleep(2 * time.Second) // faster submissions are rejected
	browser.Click("button[type=submit]")
	browser.See(".thanks")
	// The page reloads itself until it can show the result. During a reload there is no document for a moment.
	const text = `document.body ? document.body.innerText : ""`
	done := func() bool { return strings.Contains(harness.Evaluate[string](browser, text), "have processed them") }
	await.True(t, "the page shows the result", done)
	if n := submissions(t, p, form); n != 1 {
		t.Errorf("%d submissions stored, want 1", n)
	}
	if hosts := browser.Hosts(); len(hosts) != 1 {
		t.Errorf("requests went to %v", hosts)
	}
}
