package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/rest"
)

// A Grant is one grant as operators see it.
type Grant struct {
	ID          uuid.UUID  `json:"id"`
	Kind        string     `json:"kind"`
	ClientID    uuid.UUID  `json:"clientId"`
	Client      string     `json:"client"` // the client's name
	UserID      uuid.UUID  `json:"userId"`
	Email       string     `json:"email"`
	WorkspaceID uuid.UUID  `json:"tenantId"`
	Permissions []string   `json:"permissions"`
	State       string     `json:"state"` // pending, active, ended by time, revoked
	LastUsed    *time.Time `json:"lastUsedAt"`
	Ends        time.Time  `json:"endsAt"`
	RevokedAt   *time.Time `json:"revokedAt"`
	Reason      string     `json:"reason,omitempty"`
	Created     rest.Time  `json:"createdAt"`
}

// A GrantFilter selects grants; nil fields select all.
type GrantFilter struct {
	User, Client, WorkspaceID *uuid.UUID
	IssuedBefore              *time.Time // time of the consent
}

// Grants reads and revokes grants.
type Grants interface {
	// EveryGrant lists the latest grants, up to limit.
	EveryGrant(ctx context.Context, filter GrantFilter, limit int) ([]Grant, error)
	// EndGrant revokes one grant. false means that it had already ended, and nothing changed.
	EndGrant(ctx context.Context, id uuid.UUID, actor string) (grant.Grant, bool, error)
	// EndGrants reads some of the grants after a key, revokes those that have not ended, and records an event for each.
	// It returns the revoked grants and the key to continue after. The zero key precedes all grants; EndGrants returns
	// it when no grant is left.
	EndGrants(
		ctx context.Context, filter GrantFilter, after grant.Key, actor string,
	) (ended []grant.Grant, next grant.Key, err error)
}

func (Grant) columns() []string {
	return []string{"ID", "CLIENT", "USER", "WORKSPACE", "STATE", "CREATED", "LAST USED", "ENDS", "PERMISSIONS"}
}

func (g Grant) cells() []string {
	state := g.State
	if g.Reason != "" {
		state += " (" + g.Reason + ")"
	}
	return []string{
		g.ID.String(),
		g.Client,
		g.Email,
		g.WorkspaceID.String(),
		state,
		created(g.Created),
		stamp(g.LastUsed),
		stamp(&g.Ends),
		list(g.Permissions),
	}
}

// A GrantQuery is a GrantFilter as typed; "" selects all.
type GrantQuery struct {
	User, Client, Workspace, IssuedBefore string
}

func (s *Service) filter(ctx context.Context, q GrantQuery) (GrantFilter, error) {
	var filter GrantFilter
	var err error
	if filter.Client, err = parseOptional("client", q.Client); err != nil {
		return GrantFilter{}, err
	}
	if filter.WorkspaceID, err = parseOptional("workspace", q.Workspace); err != nil {
		return GrantFilter{}, err
	}
	if q.User != "" {
		user, err := s.findUser(ctx, q.User)
		if err != nil {
			return GrantFilter{}, err
		}
		filter.User = &user
	}
	if q.IssuedBefore != "" {
		at, err := time.Parse(time.RFC3339, q.IssuedBefore)
		if err != nil {
			return GrantFilter{}, refuse("the time must look like 2026-03-01T12:00:00Z")
		}
		filter.IssuedBefore = &at
	}
	return filter, nil
}

const longestList = 10_000

// ListGrants lists the latest grants that the query selects.
func (s *Service) ListGrants(ctx context.Context, q GrantQuery, limit int) (Result, error) {
	if limit < 1 || limit > longestList {
		return nil, refuse("the limit must be between 1 and 10000")
	}
	filter, err := s.filter(ctx, q)
	if err != nil {
		return nil, err
	}
	found, err := s.Store.EveryGrant(ctx, filter, limit)
	return List[Grant](found), err
}

// RevokeGrant revokes one grant.
func (s *Service) RevokeGrant(ctx context.Context, id string) (Result, error) {
	parsed, err := parseID("grant", id)
	if err != nil {
		return nil, err
	}
	g, revoked, err := s.Store.EndGrant(ctx, parsed, Actor)
	if err != nil {
		return nil, err
	}
	s.PropagateRevocation(ctx, []grant.Grant{g})
	sentence := "Revoked the grant."
	if !revoked {
		sentence = "The grant was already revoked."
	}
	return Outcome{sentence, map[string]any{"id": parsed, "revoked": revoked}}, nil
}

// RevokeGrants revokes every grant that the query selects, in batches of one transaction each. After a batch it calls
// progress with the number of grants revoked so far. After an error, these stay revoked and a repeated call revokes the
// rest.
func (s *Service) RevokeGrants(ctx context.Context, q GrantQuery, progress func(revoked int)) (Result, error) {
	filter, err := s.filter(ctx, q)
	if err != nil {
		return nil, err
	}
	revoked := 0
	var after grant.Key
	for before := -1; before < revoked; { // repeat until no grant is left: some may be created meanwhile
		before = revoked
		for more := true; more; more = after != (grant.Key{}) {
			var ended []grant.Grant
			if ended, after, err = s.Store.EndGrants(ctx, filter, after, Actor); err != nil {
				return nil, fmt.Errorf("%s revoked; run the command again to revoke the rest: %w",
					plural(revoked, "grant", "grants"), err)
			}
			if len(ended) > 0 {
				s.PropagateRevocation(ctx, ended)
				revoked += len(ended)
				progress(revoked)
			}
		}
	}
	return Outcome{
		"Revoked: " + plural(revoked, "grant", "grants") + ".",
		map[string]any{"revokedGrants": revoked},
	}, nil
}
