package e2e

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
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

func TestClient_ReturnsDenial(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := clientConnector(p, ws.Connector(t, harness.ReadProgrammes))
	request := connector.Ask()
	_, err := connector.Finish(t.Context(), request,
		p.Person(t, ws.Owner).Arrive(t, request.URL).Press(t, "deny").Callback(t).Values)
	if refusal, ok := errors.AsType[*client.Error](err); !ok || refusal.Code != "access_denied" {
		t.Errorf("%v", err)
	}
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
	var listed []client.OAuthClient
	for one, err := range admin.List(ctx) {
		must(t, err)
		listed = append(listed, one)
	}
	if one, err := admin.Get(ctx, created.ClientID); err != nil || len(listed) != 1 ||
		listed[0].ClientID != one.ClientID ||
		one.ClientSecret != "" ||
		one.Name != created.Name {
		t.Errorf("%+v %+v %v", listed, one, err)
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
	service := client.Service{
		BaseURL:    p.BaseURL,
		ClientID:   demo.ClientID,
		Secret:     client.Secret(demo.ClientSecret),
		HTTPClient: p.HTTPClient(),
	}
	about, err := service.Introspect(ctx, token.AccessToken)
	if err != nil || !about.Active || about.ClientID != created.ClientID || about.Subject != ws.Owner.ID ||
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
	if err := admin.Delete(ctx, created.ClientID); err != nil {
		t.Error(err)
	}
	refused(t, admin.Delete(ctx, created.ClientID), http.StatusNotFound, client.Flat, "not_found")
}
