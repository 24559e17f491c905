package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// OAuthClients gives access to the applications registered in the workspace (spec 4.2; contract, section 5).
type OAuthClients struct{ c *caller }

// A Registration describes a new application. ConnectorPlatform and Resource are for connectors only.
type Registration struct {
	Name                    string   `json:"name"`
	RedirectURIs            []string `json:"redirectUris"`
	RequiredPermissions     []string `json:"requiredPermissions"`
	ConnectorPlatform       string   `json:"connectorPlatform,omitempty"` // claude or chatgpt
	Resource                string   `json:"resource,omitempty"`
	TokenEndpointAuthMethod string   `json:"tokenEndpointAuthMethod,omitempty"`
}

// An OAuthClient is a registered application.
type OAuthClient struct {
	Registration
	ClientID     string    `json:"clientId"`
	ClientSecret Secret    `json:"clientSecret"` // only in responses that create it
	Kind         string    `json:"kind"`         // confidential or connector
	WorkspaceID  string    `json:"tenantId"`
	CreatedAt    time.Time `json:"createdAt"`
}

func (o OAuthClients) path() string {
	return "/v1/account/tenants/" + url.PathEscape(o.c.workspace) + "/oauth-clients"
}

func (o OAuthClients) one(clientID string) string { return o.path() + "/" + url.PathEscape(clientID) }

// reading returns a read of a route that has the workspace in its path.
func reading(path string) request {
	return request{method: http.MethodGet, path: path, idempotent: true}
}

// List returns the applications.
func (o OAuthClients) List(ctx context.Context) iter.Seq2[OAuthClient, error] {
	return list[OAuthClient](ctx, o.c, reading(o.path()))
}

// Get returns one application.
func (o OAuthClients) Get(ctx context.Context, clientID string) (OAuthClient, error) {
	return fetch[OAuthClient](ctx, o.c, reading(o.one(clientID)))
}

// Register creates an application. Only this response contains its secret. It is never retried, because each
// request creates another application.
func (o OAuthClients) Register(ctx context.Context, r Registration) (OAuthClient, error) {
	return o.post(ctx, o.path(), r)
}

// Delete deletes an application and ends all its grants.
func (o OAuthClients) Delete(ctx context.Context, clientID string) error {
	_, err := o.c.do(ctx, request{method: http.MethodDelete, path: o.one(clientID)}, nil)
	return err
}

// ReplaceSecret creates a new secret. The old one stays valid for 24 hours, or ends at once if expireOld is
// set.
func (o OAuthClients) ReplaceSecret(ctx context.Context, clientID string, expireOld bool) (Secret, error) {
	out, err := o.post(ctx, o.one(clientID)+"/secret", map[string]bool{"expireOld": expireOld})
	return out.ClientSecret, err
}

func (o OAuthClients) post(ctx context.Context, path string, value any) (OAuthClient, error) {
	return fetch[OAuthClient](ctx, o.c, jsonRequest(http.MethodPost, path, value))
}

// A Me describes the credential of a client: its user, the workspaces in which it works, and its limits.
type Me struct {
	User struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		Email string `json:"email"`
	} `json:"user"`
	Credential struct {
		Type      string    `json:"type"` // "personal_access_token" or "access_token"
		Name      string    `json:"name"`
		ExpiresAt time.Time `json:"expiresAt"`
	} `json:"credential"`
	Workspaces []struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Permissions []string `json:"permissions"`
	} `json:"workspaces"`
	Limits struct {
		RequestsInFlight int `json:"requestsInFlight"`
		SearchesInFlight int `json:"searchesInFlight"`
		PageSize         int `json:"pageSize"`
		PageBytes        int `json:"pageBytes"`
	} `json:"limits"`
}

// Me returns what the credential of the client may do, and where. It needs no permission.
func (c *Client) Me(ctx context.Context) (Me, error) {
	return fetch[Me](ctx, c.OAuthClients.c, c.OAuthClients.c.get("/v1/me", nil))
}

// Events reads the changes in the workspace (contract, section 6a).
type Events struct{ c *caller }

// An Event describes a change of a record. It does not contain the values of the record.
type Event struct {
	Sequence  int64     `json:"sequence"` // increases; pass the last one to List to continue after it
	Type      string    `json:"type"`     // such as programme.updated
	Timestamp time.Time `json:"timestamp"`
	Data      EventData `json:"data"`
}

// EventData names the record that changed.
type EventData struct {
	ID      string   `json:"id"`
	Changed []string `json:"changed"` // names of the changed fields, for an update
}

const eventsPath = "/v1/events"

// List returns the events of the last 30 days after a sequence, oldest first. A sequence of 0 returns all of them. To
// follow changes, store the sequence of the last event that the program has handled, and pass it to the next call: no
// event is missed or returned twice.
func (e Events) List(ctx context.Context, after int64) iter.Seq2[Event, error] {
	query := url.Values{}
	if after != 0 {
		query.Set("after", strconv.FormatInt(after, 10))
	}
	return list[Event](ctx, e.c, e.c.get(eventsPath, query))
}
