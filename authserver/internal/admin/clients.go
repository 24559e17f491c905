package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	SaveClient(ctx context.Context, c client.Client, secretHash []byte, event audit.Event) (bool, error)
	// EveryClient lists the clients of one workspace, or all clients and services.
	EveryClient(ctx context.Context, workspaceID *uuid.UUID) ([]Client, error)
	// EndClient deletes a client of any kind and workspace and revokes its grants, in one transaction. It sets the
	// client's workspace in the event.
	EndClient(ctx context.Context, id uuid.UUID, event audit.Event) ([]grant.Grant, error)
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

// errTaken means that the new client's identifier exists already. Its secret must not be shown.
var errTaken = errors.New("the id of the new client is already in use")

// AddService registers a client of kind service, which may introspect (contract, section 5). Its secret is only in the
// result.
func (d *Service) AddService(ctx context.Context, name string) (Result, error) {
	name, err := parseName(name)
	if err != nil {
		return nil, err
	}
	secret, err := credential.ClientSecret.New(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create client secret: %w", err)
	}
	c := client.Client{
		ID:         uuid.New(),
		Kind:       client.Service,
		Name:       name,
		AuthMethod: client.SecretBasic,
		CreatedAt:  time.Now().UTC(),
	}
	saved, err := d.Store.SaveClient(
		ctx,
		c,
		credential.Hash(secret.Reveal()),
		event(audit.ClientRegistered, "client", c.ID),
	)
	if err == nil && !saved {
		err = errTaken
	}
	if err != nil {
		return nil, err
	}
	return Outcome{
		fmt.Sprintf("Client id:     %s\nClient secret: %s\nThe secret is shown only once.", c.ID, secret.Reveal()),
		map[string]any{"clientId": c.ID, "clientSecret": secret.Reveal(), "name": name},
	}, nil
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
	ended, err := d.Store.EndClient(ctx, parsed, event(audit.ClientDeleted, "client", parsed))
	if err != nil {
		return nil, err
	}
	d.PropagateRevocation(ctx, ended)
	return Outcome{"Deleted the client. Revoked: " + plural(len(ended), "grant", "grants") + ".",
		map[string]any{"clientId": parsed, "revokedGrants": len(ended)}}, nil
}
