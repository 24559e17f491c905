package consent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A ConnectionFilter selects connections of a workspace, the latest first. A connection is a grant whose code was
// redeemed: an approval alone is none.
type ConnectionFilter struct {
	ID       *uuid.UUID      // the connection with this id, or nil for all
	UserID   *uuid.UUID      // those of one user, or nil for all
	ClientID *uuid.UUID      // those of one client, or nil for all
	State    ConnectionState // or "" for all
	Reason   grant.Reason    // those that ended for this reason after Since, or "" for all
	Since    time.Time
	Words    string       // part of the application's name or the user's name or address, or "" for all
	Before   audit.Cursor // those after this place in the list; the zero Cursor is the beginning
	Limit    int
}

// A ConnectionState says whether a connection can still act.
type ConnectionState string

// The states.
const (
	ConnectionActive ConnectionState = "active"
	ConnectionEnded  ConnectionState = "ended"
)

// State returns the state of the connection at a time.
func (c Connection) State(now time.Time) ConnectionState {
	if c.Live(now) {
		return ConnectionActive
	}
	return ConnectionEnded
}

var (
	// ErrNoConnection reports that the workspace has no such connection, or none that the caller may see.
	ErrNoConnection = errors.New("no such connection")
	// ErrConnectionEnded reports that a connection cannot be narrowed, because it has ended.
	ErrConnectionEnded = errors.New("the connection has ended")
)

// A NarrowRefusal says why a connection cannot get these permissions.
type NarrowRefusal struct {
	Message string
	Needed  perm.Set // what others of the permissions require
}

func (n *NarrowRefusal) Error() string { return n.Message }

// A ConnectionStore stores connections. Its errors wrap store.ErrUnavailable, and audit.ErrNotAuthorized if the event's
// authorization has ended.
type ConnectionStore interface {
	Connections(ctx context.Context, workspaceID uuid.UUID, filter ConnectionFilter) ([]Connection, error)
	// EndConnection revokes an active grant. It returns none if the grant is not active in the workspace.
	EndConnection(
		ctx context.Context, workspaceID, id uuid.UUID, reason grant.Reason, event audit.Event,
	) ([]grant.Grant, error)
	// NarrowConnection takes from an active grant all permissions but these. It returns false if the grant is not
	// active, or lacks one of them.
	NarrowConnection(
		ctx context.Context, workspaceID, id uuid.UUID, permissions perm.Set, event audit.Event,
	) (bool, error)
	ConnectorPolicy(ctx context.Context, workspaceID uuid.UUID) (workspace.ConnectorPolicy, error)
	// ReplaceConnectorPolicy replaces the policy with the digest seen, or returns ErrPolicyChanged.
	ReplaceConnectorPolicy(
		ctx context.Context, workspaceID uuid.UUID, seen string, after workspace.ConnectorPolicy, event audit.Event,
	) (PolicyChange, error)
	SetFeature(ctx context.Context, workspaceID uuid.UUID, feature string, on bool, event audit.Event) error
}

// Connections reads, narrows and ends the connections of workspaces, for pages and callers of the API. Members see and
// change their own; those of others need account:read:members and account:write:members (contract, section 5b). It is
// safe for concurrent use.
type Connections struct {
	Store ConnectionStore
	// PropagateRevocation propagates the ends of grants to Redis.
	PropagateRevocation func(ctx context.Context, reason grant.Reason, ended []useraccount.EndedGrant)
	Now                 func() time.Time
}

// List lists the connections that the filter selects among those that the actor may see (audit.Actor.Sees).
func (c *Connections) List(
	ctx context.Context, by audit.Actor, filter ConnectionFilter,
) (found []Connection, err error) {
	if filter.UserID, err = by.Sees(filter.UserID); err != nil {
		return nil, err
	}
	return c.Store.Connections(ctx, by.WorkspaceID, filter)
}

// Find returns the connection with this id if the actor may see it, or ErrNoConnection.
func (c *Connections) Find(ctx context.Context, by audit.Actor, id uuid.UUID) (Connection, error) {
	found, err := c.List(ctx, by, ConnectionFilter{ID: &id, Limit: 1})
	if err != nil || len(found) == 0 {
		return Connection{}, cmp.Or(err, ErrNoConnection)
	}
	return found[0], nil
}

// End ends a connection at once, and returns it as it was. It does nothing if the connection has ended. To end the
// connection of another member, the actor needs the permissions forOthers, but not account:read:members. It returns
// ErrNoConnection or audit.ErrOthers.
func (c *Connections) End(
	ctx context.Context, by audit.Actor, id uuid.UUID, forOthers perm.Set,
) (Connection, error) {
	found, event, err := c.change(ctx, by, id, audit.GrantRevoked, forOthers)
	if err != nil || !found.Live(c.Now()) {
		return found, err
	}
	reason := grant.ByUser
	if found.Grant.UserID != by.UserID {
		reason = grant.ByAdmin
	}
	ended, err := c.Store.EndConnection(ctx, by.WorkspaceID, id, reason, event)
	if err != nil {
		return Connection{}, err
	}
	c.propagate(ctx, reason, ended)
	return found, nil
}

func (c *Connections) propagate(ctx context.Context, reason grant.Reason, ended []grant.Grant) {
	var grants []useraccount.EndedGrant
	for _, g := range ended {
		grants = append(grants, useraccount.EndedGrant{ID: g.ID, Ends: g.Ends})
	}
	c.PropagateRevocation(ctx, reason, grants)
}

// SetPolicy replaces the connector policy with the digest seen, with the permissions that the actor needs for that, and
// ends or narrows the connections that exceed it. It returns ErrPolicyChanged if there is another policy now.
func (c *Connections) SetPolicy(
	ctx context.Context, by audit.Actor, seen string, policy workspace.ConnectorPolicy, needs perm.Set,
) (PolicyChange, error) {
	event := by.Event(audit.ConnectorPolicyChanged, "tenant:"+by.WorkspaceID.String(), nil, needs)
	change, err := c.Store.ReplaceConnectorPolicy(ctx, by.WorkspaceID, seen, policy, event)
	if err != nil {
		return PolicyChange{}, err
	}
	c.propagate(ctx, grant.ByPolicy, change.EndedGrants)
	return change, nil
}

// LLMIntegration is the feature that lets assistants act in a workspace.
const LLMIntegration = "llm_integration"

// SwitchAssistants switches LLM integration of the workspace on or off. The actor needs account:write:members.
func (c *Connections) SwitchAssistants(ctx context.Context, by audit.Actor, on bool) error {
	state := "off"
	if on {
		state = "on"
	}
	event := by.Event(audit.FeatureChanged, "tenant:"+by.WorkspaceID.String(),
		map[string]any{"feature": LLMIntegration, "state": state}, perm.NewSet(perm.AccountWriteMembers))
	return c.Store.SetFeature(ctx, by.WorkspaceID, LLMIntegration, on, event)
}

// Narrow leaves a connection only these permissions, from the next request on, and returns the narrowed connection. It
// returns *NarrowRefusal, ErrNoConnection, audit.ErrOthers or ErrConnectionEnded.
func (c *Connections) Narrow(
	ctx context.Context, by audit.Actor, id uuid.UUID, permissions perm.Set,
) (Connection, error) {
	found, event, err := c.change(ctx, by, id, audit.GrantNarrowed, perm.NewSet(perm.AccountWriteMembers))
	if err == nil && !found.Live(c.Now()) {
		err = ErrConnectionEnded
	}
	if err == nil {
		err = checkNarrower(found.Grant.Permissions, permissions)
	}
	if err != nil || slices.Equal(found.Grant.Permissions, permissions) {
		return found, err
	}
	narrowed, err := c.Store.NarrowConnection(ctx, by.WorkspaceID, id, permissions, event)
	if err == nil && !narrowed { // it ended, or lost one of them, at the same time
		err = ErrConnectionEnded
	}
	found.Grant.Permissions = permissions
	return found, err
}

// checkNarrower returns a *NarrowRefusal unless a connection that has held can be left with these permissions.
func checkNarrower(held, permissions perm.Set) error {
	if len(permissions) == 0 {
		return &NarrowRefusal{Message: "Keep at least one permission. To take all of them, end the connection."}
	}
	if more := permissions.Without(held); len(more) > 0 {
		return &NarrowRefusal{
			Message: "The connection does not have " + more.Scope() + ". It can only lose permissions.",
		}
	}
	if missing := permissions.Needs().Without(permissions); len(missing) > 0 {
		return &NarrowRefusal{
			Message: "Also keep " + missing.Scope() + ", which another of the permissions requires.",
			Needed:  missing,
		}
	}
	return nil
}

// change returns the connection, and the event of a change of it by the actor.
func (c *Connections) change(
	ctx context.Context, by audit.Actor, id uuid.UUID, action audit.Action, forOthers perm.Set,
) (Connection, audit.Event, error) {
	seen := by
	seen.Permissions = seen.Permissions.Union(perm.NewSet(perm.AccountReadMembers))
	found, err := c.Find(ctx, seen, id)
	if err != nil {
		return Connection{}, audit.Event{}, err
	}
	var needs perm.Set
	if found.Grant.UserID != by.UserID {
		needs = forOthers
		if !by.Permissions.HasAll(needs) {
			return Connection{}, audit.Event{}, audit.ErrOthers
		}
	}
	event := by.Event(action, "grant:"+id.String(), nil, needs)
	event.UserID = &found.Grant.UserID
	return found, event, nil
}
