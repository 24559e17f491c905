package admin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/rest"
)

type clientCommands struct {
	Add           AddClient           `cmd:"" help:"Register a confidential client or a connector. Shows its secret once."`
	AddService    AddService          `cmd:"" help:"Register an internal service that may introspect tokens. Shows its secret once."`
	Set           SetClient           `cmd:"" help:"Change a client. Its grants and its secret stay as they are."`
	ReplaceSecret ReplaceClientSecret `cmd:"" help:"Give a client a new secret and show it once. The previous one works for 24 hours more."`
	List          ListClients         `cmd:"" help:"List the clients."`
	Delete        DeleteClient        `cmd:"" help:"Delete a client and revoke its grants."`
}

// A Client is an OAuth client as operators see it.
type Client struct {
	ID          uuid.UUID  `json:"id"`
	Kind        string     `json:"kind"`
	WorkspaceID *uuid.UUID `json:"tenantId"` // null for services
	Workspace   string     `json:"tenant"`   // the workspace's name
	Name        string     `json:"name"`
	AuthMethod  string     `json:"tokenEndpointAuthMethod"`
	Grants      int        `json:"activeGrants"`
	Created     rest.Time  `json:"createdAt"`
}

// ClientStore stores OAuth clients.
type ClientStore interface {
	// Client reads a client without its secrets, or returns client.ErrUnknown.
	Client(ctx context.Context, id uuid.UUID) (client.Client, error)
	// ChangeClients creates and changes clients in one transaction. It returns a *Refusal for the id of a deleted
	// client and for an unknown workspace.
	ChangeClients(ctx context.Context, changes []ClientChange) error
	// EveryClient lists the clients of one workspace, or all clients and services.
	EveryClient(ctx context.Context, workspaceID *uuid.UUID) ([]Client, error)
}

func (c Client) cells() []cell {
	workspace := "-"
	if c.WorkspaceID != nil {
		workspace = c.Workspace
	}
	return []cell{
		{"ID", c.ID}, {"KIND", c.Kind}, {"WORKSPACE", workspace}, {"NAME", c.Name}, {"AUTHENTICATION", c.AuthMethod},
		{"CREATED", c.Created}, {"ACTIVE GRANTS", c.Grants},
	}
}

// AddService registers a client of kind service, which may introspect (contract, section 5). Its secret is only in the
// result.
type AddService struct {
	Name string `arg:"" help:"Name."`
}

func (c AddService) run(ctx context.Context, s *Service) (Result, error) {
	return s.addClient(ctx, ClientSpec{Kind: string(client.Service), Name: c.Name})
}

// AddClient registers a confidential client or a connector, with a random id if it has none. Only the result contains
// its secret.
type AddClient ClientSpec

func (c AddClient) run(ctx context.Context, s *Service) (Result, error) {
	c.Kind = string(client.Confidential)
	if c.Platform != "" {
		c.Kind = string(client.Connector)
	}
	return s.addClient(ctx, ClientSpec(c))
}

func (s *Service) addClient(ctx context.Context, spec ClientSpec) (Result, error) {
	if spec.ID == "" {
		spec.ID = uuid.NewString()
	}
	c, err := spec.client(s.Resources)
	if err != nil {
		return nil, err
	}
	if _, err := s.Store.Client(ctx, c.ID); !errors.Is(err, client.ErrUnknown) {
		if err == nil {
			err = refuse("there is already a client with that id: change it with clients set")
		}
		return nil, err
	}
	applied, err := s.applyClients(ctx, []client.Client{c}, false)
	if err != nil {
		return nil, err
	}
	return shownOnce(c, credential.Secret(applied.Clients[0].Secret)), nil
}

// shownOnce returns an outcome with the id of a client and its secret, if it has one.
func shownOnce(c client.Client, secret credential.Secret) Outcome {
	sentence, values := "Client id:     "+c.ID.String(), map[string]any{"clientId": c.ID, "name": c.Name}
	if secret != "" {
		sentence += "\nClient secret: " + secret.Reveal() + "\nThe secret is shown only once."
		values["clientSecret"] = secret.Reveal()
	}
	return Outcome{sentence, values}
}

// SetClient changes a registered client or a service, without its grants and secrets. Options that are not given keep
// the current value.
type SetClient struct {
	Client      string   `arg:"" help:"Id of the client."`
	Name        *string  `help:"New name."`
	RedirectURI []string `name:"redirect-uri" sep:"none" placeholder:"URI" help:"Redirect URI; repeat it for several. They replace all present ones."`
	AddRedirect []string `name:"add-redirect-uri" sep:"none" placeholder:"URI" help:"Redirect URI to add to the present ones; repeat it for several."`
	Permission  []string `placeholder:"P" help:"Required permission; repeat it for several. They replace all present ones."`
	AuthMethod  *string  `placeholder:"METHOD" help:"Authentication at the token endpoint."`
	Platform    *string  `help:"Platform of a connector: claude or chatgpt."`
	Resource    *string  `placeholder:"URL" help:"Resource identifier of a connector."`
}

func (c SetClient) run(ctx context.Context, s *Service) (Result, error) {
	parsed, err := parseID("client", c.Client)
	if err != nil {
		return nil, err
	}
	old, err := s.Store.Client(ctx, parsed)
	if err != nil {
		return nil, err
	}
	spec := specOf(old)
	for _, member := range []struct{ from, to *string }{
		{c.Name, &spec.Name},
		{c.AuthMethod, &spec.AuthMethod},
		{c.Platform, &spec.Platform},
		{c.Resource, &spec.Resource},
	} {
		if member.from != nil {
			*member.to = *member.from
		}
	}
	if c.RedirectURI != nil {
		spec.Redirects = c.RedirectURI
	}
	for _, uri := range c.AddRedirect {
		if !slices.Contains(spec.Redirects, uri) {
			spec.Redirects = append(spec.Redirects, uri)
		}
	}
	if c.Permission != nil {
		spec.Permissions = c.Permission
	}
	changed, err := spec.client(s.Resources)
	if err != nil {
		return nil, err
	}
	return s.applyClients(ctx, []client.Client{changed}, false)
}

// ReplaceClientSecret gives a confidential client or a service a new secret. The previous one works for 24 hours more,
// unless ExpireOld is set.
type ReplaceClientSecret struct {
	Client    string `arg:"" help:"Id of the client."`
	ExpireOld bool   `help:"Revoke the previous secret immediately, for example if it was stolen."`
}

func (c ReplaceClientSecret) run(ctx context.Context, s *Service) (Result, error) {
	parsed, err := parseID("client", c.Client)
	if err != nil {
		return nil, err
	}
	known, err := s.Store.Client(ctx, parsed)
	if err != nil {
		return nil, err
	}
	if known.Kind.Traits().Public {
		return nil, refuse("a connector is a public client and has no secret")
	}
	secret, err := s.Clients.ReplaceSecret(ctx, audit.ByOperator(), known, c.ExpireOld, nil)
	return shownOnce(known, secret), err
}

// ListClients lists the clients of a workspace, or all clients.
type ListClients struct {
	Workspace string `placeholder:"ID" aliases:"tenant" help:"Only the clients of one workspace."`
}

func (c ListClients) run(ctx context.Context, s *Service) (Result, error) {
	id, err := parseOptional("workspace", c.Workspace)
	if err != nil {
		return nil, err
	}
	return listed(s.Store.EveryClient(ctx, id))
}

// DeleteClient deletes a client and revokes its grants.
type DeleteClient struct {
	Client string `arg:"" help:"Id of the client."`
}

func (c DeleteClient) run(ctx context.Context, s *Service) (Result, error) {
	parsed, err := parseID("client", c.Client)
	if err != nil {
		return nil, err
	}
	ended, err := s.Clients.Delete(ctx, audit.ByOperator(), parsed, nil)
	return Outcome{
		"Deleted the client. Revoked: " + plural(len(ended.Grants), "grant") + "." + others(ended.More),
		map[string]any{"clientId": parsed, "revokedGrants": len(ended.Grants), "more": ended.More},
	}, err
}

// A ClientSpec describes a registered client or a service: the arguments of clients add, or an entry of a clients
// file. Its members in the file have the names of the API (contract, section 5).
type ClientSpec struct {
	// Kind is confidential, connector or service. A service has no Workspace.
	Kind        string   `yaml:"kind" kong:"-"`
	Workspace   string   `yaml:"workspace" required:"" placeholder:"ID" help:"Id of the workspace that owns the client."`
	Name        string   `yaml:"name" arg:"" help:"Name that users see."`
	Redirects   []string `yaml:"redirectUris" name:"redirect-uri" required:"" sep:"none" placeholder:"URI" help:"Redirect URI; repeat it for several."`
	Permissions []string `yaml:"requiredPermissions" name:"permission" required:"" placeholder:"P" help:"Required permission; repeat it, or separate several with commas."`
	AuthMethod  string   `yaml:"tokenEndpointAuthMethod" placeholder:"METHOD" help:"Authentication at the token endpoint: client_secret_json (default), client_secret_post or client_secret_basic."`
	Platform    string   `yaml:"connectorPlatform" name:"connector" placeholder:"PLATFORM" help:"Register a connector of this platform: claude or chatgpt. Needs --resource and ALMONER_BASE_URL."`
	Resource    string   `yaml:"resource" placeholder:"URL" help:"Resource identifier of a connector."`
	// ID is the client_id, a UUID that the operator chooses. It identifies the client in every later run of apply.
	ID string `yaml:"id" name:"id" placeholder:"UUID" help:"The client_id. Default: random."`
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
	if refusal, ok := errors.AsType[*client.Refusal](err); ok {
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
