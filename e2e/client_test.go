package e2e

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
)

// Package shared/client against the product: what a Go program is promised there.

// every returns the programmes of the caller's workspace.
func every(t *testing.T, api harness.API) []client.Programme {
	t.Helper()
	return collect(t, api.Client(t), client.ProgrammeFilter{})
}

func collect(t *testing.T, c *client.Client, f client.ProgrammeFilter) (all []client.Programme) {
	t.Helper()
	for one, err := range c.Programmes.List(t.Context(), f) {
		if err != nil {
			t.Fatal(redactError(err))
		}
		all = append(all, one)
	}
	return all
}

// refused wants a refusal of the API's, by status, shape and code.
func refused(t *testing.T, err error, status int, shape client.Shape, code string) *client.Error {
	t.Helper()
	refusal, ok := errors.AsType[*client.Error](err)
	if !ok {
		t.Fatalf("%v is no refusal", err)
	}
	if refusal.Status != status || refusal.Shape != shape || refusal.Code != code || refusal.Message == "" ||
		refusal.RequestID == "" {
		t.Errorf("want %d, %s, %s: %+v", status, shape, code, refusal)
	}
	return refusal
}

func TestClientGoesThroughEveryProgramme(t *testing.T) {
	t.Parallel()
	p := enter(t)
	c := p.Client(t, p.Demo.Workspaces.Main, harness.Bearer(p.Demo.Tokens.Reader))
	for _, size := range []int{0, 1000, 115, 46, 7} { // 46 and 115 divide 230: the last page is full
		all := collect(t, c, client.ProgrammeFilter{PageSize: size})
		seen := map[string]bool{}
		for i, one := range all {
			seen[one.ID] = true
			if i > 0 && one.CreatedAt.After(all[i-1].CreatedAt) {
				t.Fatalf("page size %d: programme %d is not in order", size, i)
			}
		}
		if len(all) != 230 || len(seen) != 230 {
			t.Errorf("page size %d: %d programmes, %d of them different", size, len(all), len(seen))
		}
	}
	sum := 0
	for _, status := range []client.ProgrammeStatus{client.Draft, client.Active, client.Completed, client.Archived} {
		for _, one := range collect(t, c, client.ProgrammeFilter{Status: status}) {
			if sum++; one.Status != status {
				t.Errorf("%s among %s", one.Status, status)
			}
		}
	}
	if sum != 230 {
		t.Errorf("%d programmes by status", sum)
	}
	if none := collect(t, c, client.ProgrammeFilter{Search: uuid.NewString()}); len(none) != 0 {
		t.Errorf("%d found", len(none))
	}
	var read int
	for range c.Programmes.List(t.Context(), client.ProgrammeFilter{PageSize: 10}) {
		if read++; read == 25 {
			break
		}
	}
	for _, err := range c.Programmes.List(t.Context(), client.ProgrammeFilter{PageSize: -1}) {
		refused(t, err, http.StatusBadRequest, client.Nested, client.CodeInvalid)
	}
}

func TestClientWritesProgrammes(t *testing.T) {
	t.Parallel()
	p := enter(t)
	office := p.Office(t)
	c := p.Client(t, office.Workspace, harness.Bearer(office.Token))
	ctx := t.Context()
	key := client.IdempotencyKey("order-1")
	made, err := c.Programmes.Create(
		ctx,
		client.NewProgramme{Name: "Tool bank", StartsOn: "2026-03-01", EndsOn: "2026-09-30"},
		key,
	)
	if err != nil || made.Status != client.Draft || made.StartsOn != "2026-03-01" || made.ETag == "" {
		t.Fatalf("%+v %v", made, err)
	}
	if again, err := c.Programmes.Create(ctx, client.NewProgramme{
		Name:     "Tool bank",
		StartsOn: "2026-03-01",
		EndsOn:   "2026-09-30",
	}, key); err != nil ||
		again != made {
		t.Errorf("%+v %v", again, err)
	}
	_, err = c.Programmes.Create(ctx, client.NewProgramme{Name: "Another"}, key)
	refused(t, err, http.StatusConflict, client.Nested, client.CodeConflict)
	changed, err := c.Programmes.Update(
		ctx,
		made.ID,
		client.ProgrammeChange{Summary: new("Borrow a drill"), EndsOn: new(client.Date(""))},
		client.IfMatch(made.ETag),
	)
	if err != nil || changed.Summary != "Borrow a drill" || changed.EndsOn != "" || changed.Name != "Tool bank" ||
		changed.ETag == made.ETag {
		t.Errorf("%+v %v", changed, err)
	}
	_, err = c.Programmes.Update(ctx, made.ID, client.ProgrammeChange{Name: new("Theirs")}, client.IfMatch(made.ETag))
	refused(t, err, http.StatusPreconditionFailed, client.Nested, client.CodePreconditionFailed)
	_, err = c.Programmes.Update(ctx, made.ID, client.ProgrammeChange{Name: new(" ")})
	if refusal := refused(t, err, http.StatusBadRequest, client.Nested, client.CodeInvalid); refusal.Fields["name"] == "" {
		t.Errorf("%+v", refusal)
	}
	if moved, err := c.Programmes.Move(ctx, made.ID, client.Active, client.IfMatch(changed.ETag)); err != nil ||
		moved.Status != client.Active {
		t.Errorf("%+v %v", moved, err)
	}
	_, err = c.Programmes.Move(ctx, made.ID, client.Draft)
	refused(t, err, http.StatusConflict, client.Nested, client.CodeConflict)
	if now, err := c.Programmes.Get(ctx, made.ID); err != nil || now.Status != client.Active ||
		now.Name != "Tool bank" {
		t.Errorf("%+v %v", now, err)
	}
	if all := collect(t, c, client.ProgrammeFilter{}); len(all) != 1 {
		t.Errorf("%d programmes", len(all))
	}
}

// "It tells apart": whoever reads an Error knows which of the three shapes it came in (spec 7.1), and whether to try
// again.
func TestClientTellsTheShapesApart(t *testing.T) {
	t.Parallel()
	p := enter(t)
	office := p.Office(t)
	ctx := t.Context()
	c := p.Client(t, office.Workspace, harness.Bearer(office.Token))
	_, err := c.Programmes.Get(ctx, uuid.NewString())
	refused(t, err, http.StatusNotFound, client.Nested, client.CodeNotFound)
	_, err = c.OAuthClients.Get(ctx, uuid.NewString())
	refused(t, err, http.StatusNotFound, client.Flat, "not_found")
	_, err = c.OAuthClients.Register(
		ctx,
		client.Registration{
			Name:                "x",
			RedirectURIs:        []string{"https://a.example/#x"},
			RequiredPermissions: []string{harness.ReadProgrammes},
		},
	)
	refused(t, err, http.StatusBadRequest, client.Flat, "invalid_redirect_uri")

	nobody := p.Client(t, office.Workspace, harness.Bearer("alm_pat_nobodys"))
	_, err = nobody.Programmes.Get(ctx, uuid.NewString())
	refused(t, err, http.StatusUnauthorized, client.Nested, client.CodeUnauthenticated)
	_, err = nobody.OAuthClients.Get(ctx, uuid.NewString())
	if refusal := refused(t, err, http.StatusForbidden, client.Gateway, ""); refusal.Message != "Forbidden" {
		t.Errorf("%+v", refusal)
	}
	for _, err := range p.Client(t, p.Office(t).Workspace, harness.Bearer(office.Token)).Programmes.List(ctx, client.ProgrammeFilter{}) {
		refused(t, err, http.StatusForbidden, client.Nested, client.CodeForbidden)
	}
	for _, err := range p.Client(t, p.Demo.Workspaces.Unprovisioned, harness.Bearer(p.Demo.Tokens.OwnerIn.Unprovisioned)).Programmes.List(ctx, client.ProgrammeFilter{}) {
		if refused(t, err, http.StatusServiceUnavailable, client.Nested, client.CodeNotProvisioned).Temporary() {
			t.Error("what an administrator has to mend is called temporary")
		}
	}
	// The wrong one of the two addresses.
	astray, err := client.New(
		p.AppURL,
		office.Workspace.ID,
		harness.Bearer(office.Token),
		client.WithHTTPClient(p.HTTPClient()),
	)
	if err != nil {
		t.Fatal(err)
	}
	_, err = astray.Programmes.Get(ctx, uuid.NewString())
	refused(t, err, http.StatusNotFound, client.Flat, "not_found")
	if strings.Contains(err.Error(), office.Token) {
		t.Error("an error shows a credential")
	}
}

// A connector as a Go program: consent, then sixteen at once find the access token run out, and one refresh serves them
// all. A second one with the same token would have ended the grant.
func TestClientRefreshesOnceForEverybody(t *testing.T) {
	t.Parallel()
	p := enter(t)
	office := p.Office(t)
	connector := office.Connector(t, harness.ReadProgrammes).Application()
	ctx := t.Context()
	first := connect(t, p.Person(t, office.Head), connector)
	if client.Workspace(first) != office.Workspace.ID || client.Scope(first) != harness.ReadProgrammes ||
		(time.Until(client.GrantEnds(first))-30*24*time.Hour).Abs() > time.Minute {
		t.Errorf(
			"workspace %s, scope %s, ends %s",
			client.Workspace(first),
			client.Scope(first),
			client.GrantEnds(first),
		)
	}
	var kept []*oauth2.Token
	runOut := *first
	runOut.Expiry = time.Now().Add(-time.Second)
	source := connector.Source(ctx, &runOut, func(_ context.Context, t *oauth2.Token) error {
		kept = append(kept, t)
		return nil
	})
	c := p.Client(t, office.Workspace, source)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for _, err := range c.Programmes.List(ctx, client.ProgrammeFilter{}) {
				t.Error(redactError(err)) // the workspace has no programme
			}
		})
	}
	group.Wait()
	if len(kept) != 1 || kept[0].RefreshToken == first.RefreshToken || kept[0].AccessToken == first.AccessToken {
		t.Fatalf("%d tokens were kept", len(kept))
	}
	// After a restart the program goes on with what was kept.
	again := *kept[0]
	again.Expiry = time.Now().Add(-time.Second)
	restarted := connector.Source(ctx, &again, nil)
	token, err := restarted.Token()
	if err != nil {
		t.Fatal(redactError(err))
	}
	// A copy that was kept by somebody else presents a token that was replaced: that ends the grant, for everybody.
	stale := connector.Source(ctx, &runOut, nil)
	for range 2 {
		_, err = stale.Token()
		refused(t, err, http.StatusBadRequest, client.Flat, "invalid_grant")
	}
	if !errors.Is(err, client.ErrConsentAgain) {
		t.Errorf("%v", err)
	}
	for _, err := range p.Client(t, office.Workspace, restarted).Programmes.List(ctx, client.ProgrammeFilter{}) {
		refused(t, err, http.StatusUnauthorized, client.Nested, client.CodeUnauthenticated)
	}
	ended := *token
	ended.Expiry = time.Now().Add(-time.Second)
	if _, err = connector.Source(ctx, &ended, nil).Token(); !errors.Is(err, client.ErrConsentAgain) {
		t.Errorf("%v", err)
	}
}

// connect lets the person consent to what a Go program asks.
func connect(t *testing.T, person *harness.Person, connector client.Connector) *oauth2.Token {
	t.Helper()
	question := connector.Ask()
	token, err := connector.Finish(
		t.Context(),
		question,
		person.Arrive(t, question.URL).Press(t, "approve").Callback(t).Values,
	)
	if err != nil {
		t.Fatal(redactError(err))
	}
	return token
}

func TestClientIsToldOfADenial(t *testing.T) {
	t.Parallel()
	p := enter(t)
	office := p.Office(t)
	connector := office.Connector(t, harness.ReadProgrammes).Application()
	question := connector.Ask()
	_, err := connector.Finish(
		t.Context(),
		question,
		p.Person(t, office.Head).Arrive(t, question.URL).Press(t, "deny").Callback(t).Values,
	)
	if refusal, ok := errors.AsType[*client.Error](err); !ok || refusal.Code != "access_denied" {
		t.Errorf("%v", err)
	}
}

// A confidential application is registered, let in, looked at by a service, gives its grant back, and is deleted: all
// by the client.
func TestClientOfAConfidentialApplication(t *testing.T) {
	t.Parallel()
	p := enter(t)
	office := p.Office(t)
	ctx := t.Context()
	admin := p.Client(t, office.Workspace, harness.Bearer(office.Token)).OAuthClients
	made, err := admin.Register(ctx, client.Registration{
		Name:                "Gift Aid export",
		RedirectURIs:        []string{harness.RedirectURI},
		RequiredPermissions: []string{harness.ReadProgrammes},
	})
	if err != nil || made.ClientSecret == "" || made.Kind != "confidential" || made.WorkspaceID != office.Workspace.ID {
		t.Fatalf("%+v %v", made, err)
	}
	var listed []client.OAuthClient
	for one, err := range admin.List(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, one)
	}
	if one, err := admin.Get(ctx, made.ClientID); err != nil || len(listed) != 1 ||
		listed[0].ClientID != one.ClientID ||
		one.ClientSecret != "" ||
		one.Name != made.Name {
		t.Errorf("%+v %+v %v", listed, one, err)
	}
	secret, err := admin.ReplaceSecret(ctx, made.ClientID, true)
	if err != nil || secret == "" || secret == made.ClientSecret {
		t.Fatal("no new secret", err)
	}
	app := harness.ConfidentialApp{
		ClientID:    made.ClientID,
		Secret:      secret.Reveal(),
		RedirectURI: harness.RedirectURI,
	}.At(p).
		Application()
	question := app.Ask()
	token, err := app.Finish(
		ctx,
		question,
		p.Person(t, office.Head).Arrive(t, question.URL).Press(t, "approve").Callback(t).Values,
	)
	if err != nil {
		t.Fatal(redactError(err))
	}
	if token.RefreshToken != "" || (time.Until(token.Expiry)-90*24*time.Hour).Abs() > time.Minute {
		t.Errorf("expires %s", token.Expiry)
	}
	c := p.Client(t, office.Workspace, oauth2.StaticTokenSource(token))
	if all := collect(t, c, client.ProgrammeFilter{}); len(all) != 0 {
		t.Errorf("%d programmes", len(all))
	}
	demo := p.DemoService()
	service := client.Service{
		BaseURL:    p.BaseURL,
		ClientID:   demo.ClientID,
		Secret:     client.Secret(demo.Secret),
		HTTPClient: p.HTTPClient(),
	}
	about, err := service.Introspect(ctx, token.AccessToken)
	if err != nil || !about.Active || about.ClientID != made.ClientID || about.Subject != office.Head.ID ||
		len(about.Permissions) != 1 ||
		about.Permissions[0] != harness.ReadProgrammes {
		t.Errorf("%+v %v", about, err)
	}
	if err := app.Revoke(ctx, token.AccessToken); err != nil {
		t.Error(redactError(err))
	}
	if about, err := service.Introspect(ctx, token.AccessToken); err != nil || about.Active {
		t.Errorf("%+v %v", about, err)
	}
	for _, err := range c.Programmes.List(ctx, client.ProgrammeFilter{}) {
		refused(t, err, http.StatusUnauthorized, client.Nested, client.CodeUnauthenticated)
	}
	if err := admin.Delete(ctx, made.ClientID); err != nil {
		t.Error(err)
	}
	refused(t, admin.Delete(ctx, made.ClientID), http.StatusNotFound, client.Flat, "not_found")
}

func TestClientOfForms(t *testing.T) {
	t.Parallel()
	p := enter(t)
	office := p.Office(t)
	ctx := t.Context()
	forms := p.Client(t, office.Workspace, harness.Bearer(office.Token)).Forms
	form, err := forms.Create(ctx, client.NewForm{Title: "Volunteer", Fields: []client.Field{
		{
			Name:     "email",
			Label:    "E-mail",
			Type:     "email",
			Required: true,
		}, {Name: "hours", Label: "Hours", Type: "number"},
		{
			Name:    "days",
			Label:   "Days",
			Type:    "multiselect",
			Options: []string{"Monday", "Friday"},
		}, {Name: "news", Label: "Send me news.", Type: "consent"},
	}})
	if err != nil || !form.Enabled || form.EmbedKey == "" || form.ETag == "" {
		t.Fatalf("%+v %v", form, err)
	}
	public := publicForm{p, "/v1/engage/public/forms/" + form.EmbedKey}
	for range 3 {
		submit(
			t,
			p.API(),
			public.path,
			map[string]any{"email": "ada@example.org", "hours": 3.50, "days": []string{"Friday"}, "news": true},
		).Wants(t, http.StatusAccepted)
	}
	var sent []client.Submission
	for one, err := range forms.Submissions(ctx, form.ID) {
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, one)
	}
	if len(sent) != 3 || sent[0].Answers["email"] != "ada@example.org" || len(sent[0].Consents) != 1 ||
		!sent[0].Consents[0].Given {
		t.Errorf("%+v", sent)
	}
	closed, err := forms.Update(
		ctx,
		form.ID,
		client.FormChange{Title: new("Closed for now"), Enabled: new(false)},
		client.IfMatch(form.ETag),
	)
	if err != nil || closed.Enabled || closed.Title != "Closed for now" || closed.ETag == form.ETag {
		t.Errorf("%+v %v", closed, err)
	}
	p.API().Get(t, public.path).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	_, err = forms.Update(ctx, form.ID, client.FormChange{Enabled: new(true)}, client.IfMatch(form.ETag))
	refused(t, err, http.StatusPreconditionFailed, client.Nested, client.CodePreconditionFailed)
	if now, err := forms.Get(ctx, form.ID); err != nil || now.Enabled || now.ETag != closed.ETag {
		t.Errorf("%+v %v", now, err)
	}
	_, err = forms.Create(ctx, client.NewForm{Title: "No question"})
	if refusal := refused(t, err, http.StatusBadRequest, client.Nested, client.CodeInvalid); refusal.Fields["fields"] == "" {
		t.Errorf("%+v", refusal)
	}
	var titles []string
	for one, err := range forms.List(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		titles = append(titles, one.Title)
	}
	if strings.Join(titles, ", ") != "Closed for now" {
		t.Errorf("%v", titles)
	}
}
