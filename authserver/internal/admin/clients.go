package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/credential"
)

// A Client is an OAuth client as operators see it.
type Client struct {
	ID          uuid.UUID  `json:"id"`
	Kind        string     `json:"kind"`
	WorkspaceID *uuid.UUID `json:"tenantId"` // null for services
	Workspace   string     `json:"tenant"`   // the workspace's name
	Name        string     `json:"name"`
	AuthMethod  string     `json:"tokenEndpointAuthMethod"`
	Created     time.Time  `json:"createdAt"`
	Grants      int        `json:"activeGrants"`
}

// Clients stores OAuth clients.
type Clients interface {
	// Client reads a client without its secrets, or returns client.ErrUnknown.
	Client(ctx context.Context, id uuid.UUID) (client.Client, error)
	// ChangeClients creates and changes clients in one transaction. It returns a *Refusal for the id of a deleted
	// client and for an unknown workspace.
	ChangeClients(ctx context.Context, changes []ClientChange) error
	// ReplaceSecret gives a client a new secret. The previous one stays valid for overlap.
	ReplaceSecret(
		ctx context.Context,
		workspaceID, id uuid.UUID,
		hash []byte,
		overlap time.Duration,
		event audit.Event,
	) error
	// EveryClient lists the clients of one workspace, or all clients and services.
	EveryClient(ctx context.Context, workspaceID *uuid.UUID) ([]Client, error)
	// EndClient deletes a client of any kind and workspace and ends its grants, in one transaction. It sets the
	// client's workspace in the event. It returns the grants that it revoked, and whether the servers revoke others.
	EndClient(ctx context.Context, id uuid.UUID, event audit.Event) (ended []grant.Grant, more bool, err error)
}

func (Client) columns() []string {
	return []string{"ID", "KIND", "WORKSPACE", "NAME", "AUTHENTICATION", "CREATED", "ACTIVE GRANTS"}
}

func (c Client) cells() []string {
	workspace := "-"
	if c.WorkspaceID != nil {
		workspace = c.Workspace
	}
	return []string{c.ID.String(), c.Kind, workspace, c.Name, c.AuthMethod, stamp(&c.Created), fmt.Sprint(c.Grants)}
}

// AddService registers a client of kind service, which may introspect (contract, section 5). Its secret is only in the
// result.
func (d *Service) AddService(ctx context.Context, name string) (Result, error) {
	return d.AddClient(ctx, ClientSpec{Kind: string(client.Service), Name: name})
}

// AddClient registers a client, with a random id if spec has none. Only the result contains its secret.
func (d *Service) AddClient(ctx context.Context, spec ClientSpec) (Result, error) {
	if spec.ID == "" {
		spec.ID = uuid.NewString()
	}
	c, err := spec.client(d.Resources)
	if err != nil {
		return nil, err
	}
	if _, err := d.Store.Client(ctx, c.ID); !errors.Is(err, client.ErrUnknown) {
		if err == nil {
			err = refuse("there is already a client with that id: change it with clients set")
		}
		return nil, err
	}
	change, _, err := d.change(ctx, c)
	if err != nil {
		return nil, err
	}
	secret, err := newSecret(&change)
	if err != nil {
		return nil, err
	}
	if err := d.Store.ChangeClients(ctx, []ClientChange{change}); err != nil {
		return nil, err
	}
	return shownOnce(c, secret), nil
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

// A ClientUpdate holds the members of a client to replace. A nil member is not changed.
type ClientUpdate struct {
	Name        *string
	Redirects   []string
	Added       []string // redirect URIs to add to the present ones, or to Redirects
	Permissions []string
	AuthMethod  *string
	Platform    *string
	Resource    *string
}

// SetClient changes a registered client or a service, without its grants and secrets.
func (d *Service) SetClient(ctx context.Context, id string, update ClientUpdate) (Result, error) {
	parsed, err := parseID("client", id)
	if err != nil {
		return nil, err
	}
	old, err := d.Store.Client(ctx, parsed)
	if errors.Is(err, client.ErrUnknown) {
		return nil, ErrNoClient
	}
	if err != nil {
		return nil, err
	}
	spec := specOf(old)
	for _, member := range []struct{ from, to *string }{
		{update.Name, &spec.Name},
		{update.AuthMethod, &spec.AuthMethod},
		{update.Platform, &spec.Platform},
		{update.Resource, &spec.Resource},
	} {
		if member.from != nil {
			*member.to = *member.from
		}
	}
	if update.Redirects != nil {
		spec.Redirects = update.Redirects
	}
	for _, uri := range update.Added {
		if !slices.Contains(spec.Redirects, uri) {
			spec.Redirects = append(spec.Redirects, uri)
		}
	}
	if update.Permissions != nil {
		spec.Permissions = update.Permissions
	}
	c, err := spec.client(d.Resources)
	if err != nil {
		return nil, err
	}
	return d.applyClients(ctx, []client.Client{c}, false)
}

// secretOverlap is how long a replaced secret still works (contract, section 5).
const secretOverlap = 24 * time.Hour

// ReplaceClientSecret gives a confidential client or a service a new secret. The previous one works for 24 hours more,
// unless expireOld is true.
func (d *Service) ReplaceClientSecret(ctx context.Context, id string, expireOld bool) (Result, error) {
	parsed, err := parseID("client", id)
	if err != nil {
		return nil, err
	}
	c, err := d.Store.Client(ctx, parsed)
	if err == nil && c.Kind.Traits().Public {
		return nil, refuse("a connector is a public client and has no secret")
	}
	change := ClientChange{Client: c}
	var secret credential.Secret
	if err == nil {
		secret, err = newSecret(&change)
	}
	overlap := secretOverlap
	if expireOld {
		overlap = 0
	}
	if err == nil {
		replaced := clientEvent(audit.ClientSecretReplaced, c)
		err = d.Store.ReplaceSecret(ctx, c.WorkspaceID, parsed, change.SecretHash, overlap, replaced)
	}
	if errors.Is(err, client.ErrUnknown) {
		return nil, ErrNoClient
	}
	if err != nil {
		return nil, err
	}
	return shownOnce(c, secret), nil
}

// Clients lists the clients of a workspace, or all clients if workspace is "".
func (d *Service) Clients(ctx context.Context, workspace string) (Result, error) {
	id, err := parseOptional("workspace", workspace)
	if err != nil {
		return nil, err
	}
	found, err := d.Store.EveryClient(ctx, id)
	return List[Client](found), err
}

// DeleteClient deletes a client and revokes its grants.
func (d *Service) DeleteClient(ctx context.Context, id string) (Result, error) {
	parsed, err := parseID("client", id)
	if err != nil {
		return nil, err
	}
	ended, more, err := d.Store.EndClient(ctx, parsed, event(audit.ClientDeleted, "client", parsed))
	if err != nil {
		return nil, err
	}
	d.PropagateRevocation(ctx, ended)
	return Outcome{"Deleted the client. Revoked: " + plural(len(ended), "grant", "grants") + "." + others(more),
		map[string]any{"clientId": parsed, "revokedGrants": len(ended), "more": more}}, nil
}
