package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// connect returns the tokens after the person has consented to a Go program's request.
func connect(t *testing.T, person *harness.Person, connector client.Connector) *oauth2.Token {
	t.Helper()
	request := connector.Ask()
	token, err := connector.Finish(t.Context(), request,
		person.Arrive(t, request.URL).Press(t, "approve").Callback(t).Values)
	mustRedacted(t, err)
	return token
}

// A confidential application is registered, authorized, introspected by a service, revoked and deleted, all through
// the client.
func TestClient_ConfidentialApplication(t *testing.T) {
	p, ws := inWorkspace(t)
	ctx := t.Context()
	admin := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).OAuthClients
	created, err := admin.Register(ctx, client.Registration{
		Name:                "Gift Aid export",
		RedirectURIs:        []string{harness.RedirectURI},
		RequiredPermissions: []string{harness.ReadProgrammes},
	})
	if err != nil || created.ClientSecret == "" || created.Kind != "confidential" ||
		created.WorkspaceID != ws.Workspace.ID {
		t.Fatalf("%+v %v", created, err)
	}
	one, err := admin.Get(ctx, created.ClientID)
	if err != nil || one.ClientSecret != "" || one.Name != created.Name {
		t.Errorf("%+v %v", one, err)
	}
	listed := 0
	for each, err := range admin.List(ctx) {
		if listed++; err != nil || each.ClientID != one.ClientID || listed > 1 {
			t.Errorf("%d: %+v %v", listed, each, err)
		}
	}
	if listed == 0 {
		t.Error("no application is listed")
	}
	secret, err := admin.ReplaceSecret(ctx, created.ClientID, true)
	if err != nil || secret == "" || secret == created.ClientSecret {
		t.Fatal("want a new secret, got none or the old one:", err)
	}
	app := client.ConfidentialApp{
		Application: clientApplication(p, created.ClientID, harness.RedirectURI),
		Secret:      secret,
	}
	request := app.Ask()
	token, err := app.Finish(ctx, request,
		p.Person(t, ws.Owner).Arrive(t, request.URL).Press(t, "approve").Callback(t).Values)
	mustRedacted(t, err)
	if token.RefreshToken != "" || (time.Until(token.Expiry)-90*24*time.Hour).Abs() > time.Minute {
		t.Errorf("expires %s", token.Expiry)
	}
	c := p.Client(t, ws.Workspace, oauth2.StaticTokenSource(token))
	if all := collect(t, c, client.ProgrammeFilter{}); len(all) != 0 {
		t.Errorf("%d programmes", len(all))
	}
	demo := p.DemoService()
	service := client.Service{BaseURL: p.BaseURL, ClientID: demo.ClientID, Secret: client.Secret(demo.ClientSecret)}
	service.HTTPClient = p.HTTPClient()
	about, err := service.Introspect(ctx, token.AccessToken)
	if err != nil || !about.Active || about.ClientID != created.ClientID || about.Subject != ws.Owner.ID ||
		!slices.Equal(about.Permissions, []string{harness.ReadProgrammes}) {
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
	if err := admin.Delete(ctx, created.ClientID); err != nil {
		t.Error(err)
	}
	refused(t, admin.Delete(ctx, created.ClientID), http.StatusNotFound, client.Flat, "not_found")
}

func TestClient_BatchesAndTransitions(t *testing.T) {
	p, ws := inWorkspace(t)
	ctx := t.Context()
	all := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Programmes
	results, err := all.Batch(ctx, []client.NewProgramme{
		{Name: "Night shelter", ExternalID: "crm-1"},
		{Name: ""},
		{Name: "Tool bank", ExternalID: "crm-1"},
	})
	if err != nil || len(results) != 3 || results[0].Status != http.StatusCreated || results[0].ID == "" ||
		results[1].Error == nil || results[1].Error.Fields["name"] == "" || results[2].ID != results[0].ID {
		t.Fatalf("%+v %v", results, err)
	}
	results, err = all.MoveAll(ctx, []client.ProgrammeMove{
		{ID: results[0].ID, To: client.Active},
		{ID: results[0].ID, To: client.Draft},
		{ID: uuid.NewString(), To: client.Active},
	})
	if err != nil || len(results) != 3 || results[0].Status != http.StatusOK ||
		results[1].Error == nil || results[1].Error.Code != client.CodeConflict ||
		results[2].Status != http.StatusNotFound {
		t.Errorf("%+v %v", results, err)
	}
	_, err = all.MoveAll(ctx, []client.ProgrammeMove{})
	refused(t, err, http.StatusBadRequest, client.Nested, client.CodeInvalid)
}

// clientConnector returns the connector in the form that the Go client takes.
func clientConnector(p *harness.Product, c harness.Connector) client.Connector {
	return client.Connector{
		Application: clientApplication(p, c.ClientID, c.RedirectURI),
		Resource:    c.Resource,
		Scopes:      strings.Fields(c.Scope),
	}
}

func clientApplication(p *harness.Product, id, redirectURI string) client.Application {
	return client.Application{
		BaseURL:     p.BaseURL,
		AppURL:      p.AppURL,
		ClientID:    id,
		RedirectURI: redirectURI,
		HTTPClient:  p.HTTPClient(),
	}
}

// oauth2Connector returns the connector's configuration for golang.org/x/oauth2.
func oauth2Connector(p *harness.Product, c harness.Connector) *oauth2.Config {
	return &oauth2.Config{
		ClientID:    c.ClientID,
		RedirectURL: c.RedirectURI,
		Scopes:      strings.Fields(c.Scope),
		Endpoint: oauth2.Endpoint{
			AuthURL:   p.AppURL + "/oauth/authorize",
			TokenURL:  p.BaseURL + harness.TokenPath,
			AuthStyle: oauth2.AuthStyleInParams,
		},
	}
}

// withResource returns a context in which golang.org/x/oauth2 sends the connector's resource with every token
// request. The library has no option for this on refresh.
func withResource(ctx context.Context, c harness.Connector) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient,
		&http.Client{Transport: resourceSender(c.Resource), Timeout: await.Long})
}

type resourceSender string

// RoundTrip adds the resource to the form.
func (r resourceSender) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body == nil || request.Method != http.MethodPost {
		return http.DefaultTransport.RoundTrip(request)
	}
	content, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	_ = request.Body.Close()
	form, err := url.ParseQuery(string(content))
	if err != nil {
		return nil, err
	}
	form.Set("resource", string(r))
	body := form.Encode()
	request = request.Clone(request.Context())
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader([]byte(body))), int64(len(body))
	return http.DefaultTransport.RoundTrip(request)
}
