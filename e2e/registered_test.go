package e2e

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 5: reading, deleting and changing registered applications.

func TestRegistered_ReadAndListWithoutSecret(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.As(ws.Token)
	confidential := ws.Confidential(t, "client_secret_basic", harness.ReadProgrammes)
	connector := ws.Connector(t, harness.ReadProgrammes)

	one := api.Get(t, ws.Clients()+"/"+confidential.ClientID).Wants(t, http.StatusOK)
	wantsClient(t, one, one.Object(t))
	if one.Object(t)["tokenEndpointAuthMethod"] != "client_secret_basic" {
		t.Errorf("wrong tokenEndpointAuthMethod:\n%s", one)
	}
	other := api.Get(t, ws.Clients()+"/"+connector.ClientID).Wants(t, http.StatusOK)
	wantsClient(t, other, other.Object(t), "connectorPlatform", "resource")

	list := api.Get(t, ws.Clients()).Wants(t, http.StatusOK)
	object := list.WantsKeys(t, "data", "meta")
	if meta, _ := object["meta"].(map[string]any); meta["count"] != float64(2) {
		t.Errorf("meta.count is not 2:\n%s", list)
	}
	var ids []string
	for _, entry := range object["data"].([]any) {
		client := entry.(map[string]any)
		wantsClient(t, list, client)
		ids = append(ids, client["clientId"].(string))
	}
	if len(ids) != 2 || !slices.Contains(ids, confidential.ClientID) || !slices.Contains(ids, connector.ClientID) {
		t.Errorf("the list does not contain the two registered applications:\n%s", list)
	}
}

func TestRegistered_UnknownIsNotFound(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, other := p.NewWorkspace(t), p.NewWorkspace(t)
	foreign := other.Confidential(t, "", harness.ReadProgrammes).ClientID
	deleted := ws.Confidential(t, "", harness.ReadProgrammes).ClientID
	p.As(ws.Token).Send(t, http.MethodDelete, ws.Clients()+"/"+deleted, "", "").Wants(t, http.StatusNoContent)
	for name, client := range map[string]string{
		"never was": uuid.NewString(), "another workspace's": foreign, "deleted": deleted, "no identifier": "nonsense",
		"a service": p.Demo.Clients.Service.ClientID,
	} {
		t.Run(name, func(t *testing.T) {
			for _, route := range clientRoutes(ws.Workspace, client)[2:] {
				route.call(t, p.As(ws.Token)).WantsFlat(t, http.StatusNotFound, "not_found")
			}
		})
	}
	p.As(other.Token).Get(t, other.Clients()+"/"+foreign).Wants(t, http.StatusOK)
}

func TestRegistered_DeletionRevokesGrants(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	app, connector := ws.Confidential(t, "", harness.ReadProgrammes), ws.Connector(t, harness.ReadProgrammes)
	long, short := app.Connect(t, owner), connector.Connect(t, owner)
	attempt := connector.Begin()
	unused := attempt.Code(t, owner)
	for _, token := range []string{long.AccessToken, short.AccessToken} {
		p.In(ws.Workspace, token).Get(t, programmes).Wants(t, http.StatusOK)
	}
	for _, client := range []string{app.ClientID, connector.ClientID} {
		answer := p.As(ws.Token).Send(t, http.MethodDelete, ws.Clients()+"/"+client, "", "").
			Wants(t, http.StatusNoContent)
		if len(answer.Body) != 0 {
			t.Errorf("204 with a body:\n%s", answer)
		}
	}
	for _, token := range []string{long.AccessToken, short.AccessToken} {
		p.In(ws.Workspace, token).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	}
	connector.Refresh(t, short.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_client", "invalid_grant")
	connector.Post(t, attempt.CodeForm(unused)).WantsFlat(t, http.StatusBadRequest, "invalid_client", "invalid_grant")
	app.Exchange(t, app.Body("alm_ac_x")).WantsFlat(t, http.StatusBadRequest, "invalid_client")
	owner.Open(t, p.AuthorizeURL(app.Request())).WantsPage(t, http.StatusBadRequest)
}

func TestRegistered_OldSecretWorksForOneDay(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	answer := p.As(ws.Token).Send(t, http.MethodPost, ws.Clients()+"/"+app.ClientID+"/secret", "", "").
		Wants(t, http.StatusOK)
	renewed := app
	renewed.ClientSecret, _ = answer.Object(t)["clientSecret"].(string)
	if renewed.ClientSecret == "" || renewed.ClientSecret == app.ClientSecret {
		t.Fatal("want a new secret, got none or the old one")
	}
	answer.WantsHeader(t, "Cache-Control", "no-store")
	app.Connect(t, owner)
	renewed.Connect(t, owner)

	p.Database.Exec(
		t,
		`update account.client_secrets
				set created_at = created_at - interval '24 hours', expires_at = expires_at - interval '24 hours'
		where client_id = $1 and expires_at is not null`,
		app.ClientID,
	)
	app.Exchange(t, app.Body(app.Code(t, owner))).WantsFlat(t, http.StatusBadRequest, "invalid_client")
	renewed.Connect(t, owner)
}

func TestRegistered_NewSecretCanExpireOld(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	answer := p.As(ws.Token).
		JSON(t, http.MethodPost, ws.Clients()+"/"+app.ClientID+"/secret", map[string]any{"expireOld": true})
	renewed := app
	renewed.ClientSecret, _ = answer.Wants(t, http.StatusOK).Object(t)["clientSecret"].(string)
	code := app.Code(t, owner)
	app.Exchange(t, app.Body(code)).WantsFlat(t, http.StatusBadRequest, "invalid_client")
	renewed.Exchange(t, renewed.Body(code)).Tokens(t)
}

// "Registering an application does not by itself authorise access to user data." (spec 5.2)
func TestRegistered_AloneAuthorizesNothing(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	for _, bearer := range []string{app.ClientSecret, app.ClientID, app.ClientID + ":" + app.ClientSecret} {
		p.In(ws.Workspace, bearer).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	}
	body := map[string]any{
		"grant_type":    "client_credentials",
		"client_id":     app.ClientID,
		"client_secret": app.ClientSecret,
	}
	app.Exchange(t, body).WantsFlat(t, http.StatusBadRequest, "unsupported_grant_type")
}
