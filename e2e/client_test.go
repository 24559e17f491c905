package e2e

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
)

// Package shared/client against the product.

func collect(t *testing.T, c *client.Client, f client.ProgrammeFilter) (all []client.Programme) {
	t.Helper()
	for one, err := range c.Programmes.List(t.Context(), f) {
		mustRedacted(t, err)
		all = append(all, one)
	}
	return all
}

// refused checks that err is an error response of the API with the status, shape and code.
func refused(t *testing.T, err error, status int, shape client.Shape, code string) *client.Error {
	t.Helper()
	refusal, ok := errors.AsType[*client.Error](err)
	if !ok {
		t.Fatalf("%v is not an API error", err)
	}
	if refusal.Status != status || refusal.Shape != shape || refusal.Code != code || refusal.Message == "" ||
		refusal.RequestID == "" {
		t.Errorf("want %d, %s, %s: %+v", status, shape, code, refusal)
	}
	return refusal
}

func TestClient_ListsAllProgrammes(t *testing.T) {
	p := inParallel(t)
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
				t.Errorf("a programme with status %s in the list of status %s", one.Status, status)
			}
		}
	}
	if sum != 230 {
		t.Errorf("%d programmes by status", sum)
	}
	if none := collect(t, c, client.ProgrammeFilter{Search: uuid.NewString()}); len(none) != 0 {
		t.Errorf("%d found", len(none))
	}
	for _, err := range c.Programmes.List(t.Context(), client.ProgrammeFilter{PageSize: -1}) {
		refused(t, err, http.StatusBadRequest, client.Nested, client.CodeInvalid)
	}
}

func TestClient_WritesProgrammes(t *testing.T) {
	p, ws := inWorkspace(t)
	c := p.Client(t, ws.Workspace, harness.Bearer(ws.Token))
	ctx := t.Context()
	key := client.IdempotencyKey("order-1")
	bank := client.NewProgramme{Name: "Tool bank", StartsOn: "2026-03-01", EndsOn: "2026-09-30"}
	created, err := c.Programmes.Create(ctx, bank, key)
	if err != nil || created.Status != client.Draft || created.StartsOn != "2026-03-01" || created.ETag == "" {
		t.Fatalf("%+v %v", created, err)
	}
	if again, err := c.Programmes.Create(ctx, bank, key); err != nil || again != created {
		t.Errorf("%+v %v", again, err)
	}
	_, err = c.Programmes.Create(ctx, client.NewProgramme{Name: "Another"}, key)
	refused(t, err, http.StatusConflict, client.Nested, client.CodeConflict)
	changed, err := c.Programmes.Update(ctx, created.ID,
		client.ProgrammeChange{Summary: new("Borrow a drill"), EndsOn: new(client.Date(""))},
		client.IfMatch(created.ETag))
	if err != nil || changed.Summary != "Borrow a drill" || changed.EndsOn != "" || changed.Name != "Tool bank" ||
		changed.ETag == created.ETag {
		t.Errorf("%+v %v", changed, err)
	}
	theirs := client.ProgrammeChange{Name: new("Theirs")}
	_, err = c.Programmes.Update(ctx, created.ID, theirs, client.IfMatch(created.ETag))
	refused(t, err, http.StatusPreconditionFailed, client.Nested, client.CodePreconditionFailed)
	_, err = c.Programmes.Update(ctx, created.ID, client.ProgrammeChange{Name: new(" ")})
	if fields := refused(t, err, 400, client.Nested, client.CodeInvalid).Fields; fields["name"] == "" {
		t.Errorf("%v", fields)
	}
	if moved, err := c.Programmes.Move(ctx, created.ID, client.Active, client.IfMatch(changed.ETag)); err != nil ||
		moved.Status != client.Active {
		t.Errorf("%+v %v", moved, err)
	}
	_, err = c.Programmes.Move(ctx, created.ID, client.Draft)
	refused(t, err, http.StatusConflict, client.Nested, client.CodeConflict)
	if now, err := c.Programmes.Get(ctx, created.ID); err != nil || now.Status != client.Active ||
		now.Name != "Tool bank" {
		t.Errorf("%+v %v", now, err)
	}
	done, err := c.Programmes.Import(ctx, strings.NewReader("\ufeffname,summary,status,startsOn,endsOn\r\n"+
		"Pantry,Food,active,2026-01-01,2026-12-31\r\nChoir,\"Sings, and\r\ndances\",draft,,\r\n\r\n"))
	must(t, err)
	if done, err = c.Programmes.WaitForImport(ctx, done.ID); err != nil || done.Status != "processed" ||
		done.Imported != 2 || len(done.Errors) != 0 {
		t.Errorf("the import ended as %+v %v", done, err)
	}
	all := collect(t, c, client.ProgrammeFilter{})
	i := slices.IndexFunc(all, func(one client.Programme) bool { return one.Name == "Pantry" })
	if len(all) != 3 || i < 0 || all[i].Status != client.Active || all[i].Summary != "Food" ||
		all[i].EndsOn != "2026-12-31" {
		t.Errorf("imported %+v", all)
	}
}

// A client.Error says which of the three shapes the response had (spec 7.1) and whether a retry can help.
func TestClient_DistinguishesErrorShapes(t *testing.T) {
	p, ws := inWorkspace(t)
	ctx := t.Context()
	c := p.Client(t, ws.Workspace, harness.Bearer(ws.Token))
	_, err := c.Programmes.Get(ctx, uuid.NewString())
	refused(t, err, http.StatusNotFound, client.Nested, client.CodeNotFound)
	_, err = c.OAuthClients.Get(ctx, uuid.NewString())
	refused(t, err, http.StatusNotFound, client.Flat, "not_found")
	invalid := client.Registration{Name: "x", RedirectURIs: []string{"https://a.example/#x"}}
	invalid.RequiredPermissions = []string{harness.ReadProgrammes}
	_, err = c.OAuthClients.Register(ctx, invalid)
	refused(t, err, http.StatusBadRequest, client.Flat, "invalid_redirect_uri")

	unknown := p.Client(t, ws.Workspace, harness.Bearer("alm_pat_unknown"))
	_, err = unknown.Programmes.Get(ctx, uuid.NewString())
	refused(t, err, http.StatusUnauthorized, client.Nested, client.CodeUnauthenticated)
	_, err = unknown.OAuthClients.Get(ctx, uuid.NewString())
	if refusal := refused(t, err, http.StatusForbidden, client.Gateway, ""); refusal.Message != "Forbidden" {
		t.Errorf("%+v", refusal)
	}
	others := p.Client(t, p.NewWorkspace(t).Workspace, harness.Bearer(ws.Token))
	for _, err := range others.Programmes.List(ctx, client.ProgrammeFilter{}) {
		refused(t, err, http.StatusForbidden, client.Nested, client.CodeForbidden)
	}
	unprovisioned := p.Client(t, p.Demo.Workspaces.Unprovisioned, harness.Bearer(p.Demo.Tokens.OwnerIn.Unprovisioned))
	for _, err := range unprovisioned.Programmes.List(ctx, client.ProgrammeFilter{}) {
		if refused(t, err, http.StatusServiceUnavailable, client.Nested, client.CodeNotProvisioned).Temporary() {
			t.Error("Temporary() is true for an error that an administrator must fix")
		}
	}
	// The app URL in place of the base URL.
	astray, err := client.New(p.AppURL, ws.Workspace.ID, harness.Bearer(ws.Token),
		client.WithHTTPClient(p.HTTPClient()))
	must(t, err)
	_, err = astray.Programmes.Get(ctx, uuid.NewString())
	refused(t, err, http.StatusNotFound, client.Flat, "not_found")
	if strings.Contains(err.Error(), ws.Token) {
		t.Error("an error contains a credential")
	}
}

// A Go program as a connector: after consent, sixteen concurrent requests find the access token expired, and one
// refresh serves all of them. A second refresh with the same token would have revoked the grant.
func TestClient_RefreshesOnceForConcurrentRequests(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := clientConnector(p, ws.Connector(t, harness.ReadProgrammes))
	ctx := t.Context()
	first := connect(t, p.Person(t, ws.Owner), connector)
	if client.Workspace(first) != ws.Workspace.ID || client.Scope(first) != harness.ReadProgrammes ||
		(time.Until(client.GrantEnds(first))-30*24*time.Hour).Abs() > time.Minute {
		t.Errorf("workspace %s, scope %s, ends %s", client.Workspace(first), client.Scope(first),
			client.GrantEnds(first))
	}
	var stored []*oauth2.Token
	expired := *first
	expired.Expiry = time.Now().Add(-time.Second)
	source := connector.Source(ctx, &expired, func(_ context.Context, t *oauth2.Token) error {
		stored = append(stored, t)
		return nil
	})
	c := p.Client(t, ws.Workspace, source)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for _, err := range c.Programmes.List(ctx, client.ProgrammeFilter{}) {
				t.Error(redactError(err)) // the workspace has no programme
			}
		})
	}
	group.Wait()
	if len(stored) != 1 || stored[0].RefreshToken == first.RefreshToken || stored[0].AccessToken == first.AccessToken {
		t.Fatalf("%d tokens were stored", len(stored))
	}
	// After a restart the program continues with the stored tokens.
	again := *stored[0]
	again.Expiry = time.Now().Add(-time.Second)
	restarted := connector.Source(ctx, &again, nil)
	token, err := restarted.Token()
	mustRedacted(t, err)
	// A copy of the old tokens presents a superseded refresh token, which revokes the grant.
	stale := connector.Source(ctx, &expired, nil)
	for range 2 {
		_, err = stale.Token()
		refused(t, err, http.StatusBadRequest, client.Flat, "invalid_grant")
	}
	if !errors.Is(err, client.ErrConsentAgain) {
		t.Errorf("%v", err)
	}
	for _, err := range p.Client(t, ws.Workspace, restarted).Programmes.List(ctx, client.ProgrammeFilter{}) {
		refused(t, err, http.StatusUnauthorized, client.Nested, client.CodeUnauthenticated)
	}
	ended := *token
	ended.Expiry = time.Now().Add(-time.Second)
	if _, err = connector.Source(ctx, &ended, nil).Token(); !errors.Is(err, client.ErrConsentAgain) {
		t.Errorf("%v", err)
	}
}

func TestClient_Forms(t *testing.T) {
	p, ws := inWorkspace(t)
	ctx := t.Context()
	forms := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Forms
	form, err := forms.Create(ctx, client.NewForm{Title: "Volunteer", Fields: []client.Field{
		{Name: "email", Label: "E-mail", Type: "email", Required: true},
		{Name: "hours", Label: "Hours", Type: "number"},
		{Name: "days", Label: "Days", Type: "multiselect", Options: []string{"Monday", "Friday"}},
		{Name: "news", Label: "Send me news.", Type: "consent"},
	}})
	if err != nil || !form.Enabled || form.EmbedKey == "" || form.ETag == "" {
		t.Fatalf("%+v %v", form, err)
	}
	public := "/v1/engage/public/forms/" + form.EmbedKey
	answers := map[string]any{"email": "ada@example.org", "hours": 3.50, "days": []string{"Friday"}, "news": true}
	submit(t, p.API(), public, answers).Wants(t, http.StatusAccepted)
	found := 0
	for sent, err := range forms.Submissions(ctx, form.ID) {
		found++
		if err != nil || sent.Answers["email"] != "ada@example.org" || len(sent.Consents) != 1 ||
			!sent.Consents[0].Given {
			t.Errorf("%+v %v", sent, err)
		}
	}
	if found != 1 {
		t.Errorf("%d submissions, want 1", found)
	}
	exported, err := forms.Export(ctx, form.ID, client.CSV, client.SubmissionFilter{})
	must(t, err)
	defer func() { _ = exported.Close() }()
	if rows, err := csv.NewReader(exported).ReadAll(); err != nil || len(rows) != 2 ||
		!slices.Contains(rows[1], "ada@example.org") {
		t.Errorf("%v %v", rows, err)
	}
	none, err := forms.Export(ctx, form.ID, client.JSONLines, client.SubmissionFilter{Status: "rejected"})
	must(t, err)
	if content, err := io.ReadAll(none); err != nil || len(content) != 0 {
		t.Errorf("%s %v", content, err)
	}
	_, err = forms.Export(ctx, uuid.NewString(), client.CSV, client.SubmissionFilter{})
	refused(t, err, http.StatusNotFound, client.Nested, client.CodeNotFound)
	closed, err := forms.Update(ctx, form.ID, client.FormChange{Title: new("Closed for now"), Enabled: new(false)},
		client.IfMatch(form.ETag))
	if err != nil || closed.Enabled || closed.Title != "Closed for now" || closed.ETag == form.ETag {
		t.Errorf("%+v %v", closed, err)
	}
	p.API().Get(t, public).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	_, err = forms.Update(ctx, form.ID, client.FormChange{Enabled: new(true)}, client.IfMatch(form.ETag))
	refused(t, err, http.StatusPreconditionFailed, client.Nested, client.CodePreconditionFailed)
	if now, err := forms.Get(ctx, form.ID); err != nil || now.Enabled || now.ETag != closed.ETag {
		t.Errorf("%+v %v", now, err)
	}
	_, err = forms.Create(ctx, client.NewForm{Title: "No request"})
	if fields := refused(t, err, 400, client.Nested, client.CodeInvalid).Fields; fields["fields"] == "" {
		t.Errorf("%v", fields)
	}
	var titles []string
	for one, err := range forms.List(ctx) {
		must(t, err)
		titles = append(titles, one.Title)
	}
	if strings.Join(titles, ", ") != "Closed for now" {
		t.Errorf("%v", titles)
	}
}
