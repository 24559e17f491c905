package admin

import (
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/displayname"
)

// A ClientSpec describes a registered client or a service: the arguments of clients add, or an entry of a clients
// file. Its members have the names of the API (contract, section 5).
type ClientSpec struct {
	// ID is the client_id, a UUID that the operator chooses. It identifies the client in every later run.
	ID          string   `yaml:"id"`
	Kind        string   `yaml:"kind"`      // confidential, connector or service
	Workspace   string   `yaml:"workspace"` // id; empty for a service
	Name        string   `yaml:"name"`
	Redirects   []string `yaml:"redirectUris"`
	Permissions []string `yaml:"requiredPermissions"`
	Platform    string   `yaml:"connectorPlatform"`
	Resource    string   `yaml:"resource"`
	AuthMethod  string   `yaml:"tokenEndpointAuthMethod"`
}

// client returns the client that the spec describes, or a *Refusal. resources are the deployment's resource
// identifiers, or nil if ALMONER_BASE_URL is not set.
func (s ClientSpec) client(resources []string) (client.Client, error) {
	id, err := parseID("client", s.ID)
	if err != nil {
		return client.Client{}, err
	}
	var c client.Client
	switch kind := client.Kind(s.Kind); kind {
	case client.Service:
		c, err = s.service()
	case client.Connector, client.Confidential:
		c, err = s.registered(kind, resources)
	default:
		err = refuse("kind must be confidential, connector or service")
	}
	var refusal *client.Refusal
	if errors.As(err, &refusal) {
		err = refuse(refusal.Error())
	}
	c.ID = id
	return c, err
}

func (s ClientSpec) registered(kind client.Kind, resources []string) (client.Client, error) {
	if kind == client.Connector && resources == nil {
		return client.Client{}, refuse("set ALMONER_BASE_URL: it determines the resource identifiers of connectors")
	}
	workspaceID, err := parseID("workspace", s.Workspace)
	if err != nil {
		return client.Client{}, err
	}
	c, err := client.Registration{
		Name:       s.Name,
		Redirects:  s.Redirects,
		Required:   s.Permissions,
		Platform:   s.Platform,
		Resource:   s.Resource,
		AuthMethod: s.AuthMethod,
		Connector:  kind == client.Connector,
	}.Accept(resources)
	if err == nil && c.Kind != kind {
		err = refuse("only a connector has connectorPlatform and resource")
	}
	c.WorkspaceID = workspaceID
	return c, err
}

// service returns the client of kind service, which may introspect (contract, section 5).
func (s ClientSpec) service() (client.Client, error) {
	c := client.Client{Kind: client.Service, Name: strings.TrimSpace(s.Name), AuthMethod: client.SecretBasic}
	if message := displayname.CheckApplication(c.Name); message != "" {
		return c, refuse("name: " + message)
	}
	if s.Workspace != "" || s.Redirects != nil || s.Permissions != nil || s.Platform != "" || s.Resource != "" {
		return c, refuse("a service has only id, kind, name and tokenEndpointAuthMethod")
	}
	switch method := client.AuthMethod(s.AuthMethod); method {
	case "", client.SecretBasic:
	case client.SecretPost:
		c.AuthMethod = method
	default:
		return c, refuse("tokenEndpointAuthMethod of a service must be client_secret_basic or client_secret_post")
	}
	return c, nil
}

// specOf returns the spec of an existing client.
func specOf(c client.Client) ClientSpec {
	s := ClientSpec{
		ID:          c.ID.String(),
		Kind:        string(c.Kind),
		Name:        c.Name,
		Redirects:   c.Redirects,
		Permissions: c.Required.Strings(),
		Platform:    c.Platform,
		Resource:    c.Resource,
		AuthMethod:  string(c.AuthMethod),
	}
	if c.Kind == client.Service {
		s.Redirects, s.Permissions = nil, nil
	}
	if c.WorkspaceID != uuid.Nil {
		s.Workspace = c.WorkspaceID.String()
	}
	return s
}

// changes returns the names of the members that differ between a client and the client that replaces it, or a *Refusal
// if the difference cannot be applied to an existing client.
func changes(old, c client.Client) ([]string, error) {
	switch {
	case old.Address != "":
		return nil, refuse("this client is known by its metadata document, which only its publisher can change")
	case old.Kind != c.Kind:
		return nil, refuse("the kind of a client cannot change from " + string(old.Kind) + " to " + string(c.Kind) +
			": delete the client, and register it with another id")
	case old.WorkspaceID != c.WorkspaceID:
		return nil, refuse("a client cannot move to another workspace: delete it, and register it with another id")
	}
	var changed []string
	for _, member := range []struct {
		name   string
		differ bool
	}{
		{"name", old.Name != c.Name},
		{"redirectUris", !slices.Equal(old.Redirects, c.Redirects)},
		{"requiredPermissions", old.Required.Scope() != c.Required.Scope()},
		{"connectorPlatform", old.Platform != c.Platform},
		{"resource", old.Resource != c.Resource},
		{"tokenEndpointAuthMethod", old.AuthMethod != c.AuthMethod},
	} {
		if member.differ {
			changed = append(changed, member.name)
		}
	}
	return changed, nil
}
