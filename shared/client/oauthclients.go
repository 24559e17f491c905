package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
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
	return request{method: http.MethodGet, path: path, again: true}
}

// List returns the applications.
func (o OAuthClients) List(ctx context.Context) iter.Seq2[OAuthClient, error] {
	return list[OAuthClient](ctx, o.c, reading(o.path()))
}

// Get returns one application.
func (o OAuthClients) Get(ctx context.Context, clientID string) (OAuthClient, error) {
	var out OAuthClient
	_, err := o.c.do(ctx, reading(o.one(clientID)), &out)
	return out, err
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
	body, err := json.Marshal(value)
	if err != nil {
		return OAuthClient{}, fmt.Errorf("almoner: POST %s: what is to be sent is no JSON: %w", path, err)
	}
	var out OAuthClient
	_, err = o.c.do(
		ctx,
		request{
			method: http.MethodPost,
			path:   path,
			body:   body,
			header: http.Header{"Content-Type": {"application/json"}},
		},
		&out,
	)
	return out, err
}
