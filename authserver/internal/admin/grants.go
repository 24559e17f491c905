package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/rest"
)

type grantCommands struct {
	List      ListGrants   `cmd:"" help:"List the latest grants."`
	Revoke    RevokeGrant  `cmd:"" help:"Revoke one grant."`
	RevokeAll RevokeGrants `cmd:"" help:"Revoke all grants that match the options, or every grant with --all."`
}

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

// GrantStore reads and revokes grants.
type GrantStore interface {
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

func (g Grant) cells() []cell {
	state := g.State
	if g.Reason != "" {
		state += " (" + g.Reason + ")"
	}
	return []cell{
		{"ID", g.ID}, {"CLIENT", g.Client}, {"USER", g.Email}, {"WORKSPACE", g.WorkspaceID}, {"STATE", state},
		{"CREATED", g.Created}, {"LAST USED", g.LastUsed}, {"ENDS", g.Ends}, {"PERMISSIONS", g.Permissions},
	}
}

// GrantOptions select grants.
type GrantOptions struct {
	User         Named `placeholder:"USER" help:"Only the grants of one user: id or e-mail address."`
	Client       Named `placeholder:"ID" help:"Only the grants of one client."`
	Workspace    Named `placeholder:"ID" aliases:"tenant" help:"Only the grants in one workspace."`
	IssuedBefore Named `placeholder:"TIME" help:"Only grants with consent before a time such as 2026-03-01T12:00:00Z."`
}

// Named is the value of an option that narrows a command. A given value must not be empty: --workspace "$WORKSPACE"
// with an unset variable must not widen the command to every workspace.
type Named string

// UnmarshalText parses the value of the option.
func (n *Named) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("must not be empty: give a value, or omit the option")
	}
	*n = Named(text)
	return nil
}

func (s *Service) filter(ctx context.Context, o GrantOptions) (GrantFilter, error) {
	var filter GrantFilter
	var err error
	if filter.Client, err = parseOptional("client", string(o.Client)); err != nil {
		return filter, err
	}
	if filter.WorkspaceID, err = parseOptional("workspace", string(o.Workspace)); err != nil {
		return filter, err
	}
	if o.User != "" {
		user, err := s.findUser(ctx, string(o.User))
		if err != nil {
			return filter, err
		}
		filter.User = &user
	}
	if o.IssuedBefore != "" {
		at, err := time.Parse(time.RFC3339, string(o.IssuedBefore))
		if err != nil {
			return filter, refuse("the time must look like 2026-03-01T12:00:00Z")
		}
		filter.IssuedBefore = &at
	}
	return filter, nil
}

// ListGrants lists the latest grants that the options select.
type ListGrants struct {
	GrantOptions
	Limit int `default:"200" help:"Maximum number of grants, up to 10000."`
}

func (c ListGrants) run(ctx context.Context, s *Service) (Result, error) {
	if c.Limit < 1 || c.Limit > 10_000 {
		return nil, refuse("the limit must be between 1 and 10000")
	}
	filter, err := s.filter(ctx, c.GrantOptions)
	if err != nil {
		return nil, err
	}
	return listed(s.Store.EveryGrant(ctx, filter, c.Limit))
}

// RevokeGrant revokes one grant.
type RevokeGrant struct {
	Grant string `arg:"" help:"Id of the grant."`
}

func (c RevokeGrant) run(ctx context.Context, s *Service) (Result, error) {
	parsed, err := parseID("grant", c.Grant)
	if err != nil {
		return nil, err
	}
	g, revoked, err := s.Store.EndGrant(ctx, parsed, audit.Operator)
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

// RevokeGrants revokes every grant that the options select, in batches of one transaction each. After a batch it
// reports the number of grants revoked so far. After an error, these stay revoked and a repeated command revokes the
// rest.
type RevokeGrants struct {
	GrantOptions
	All    bool              `help:"Every grant."`
	Report func(revoked int) `kong:"-"` // set by Check
}

// Check implements Checked. It needs an option or --all, so that an operator who forgets the options does not revoke
// every grant.
func (c *RevokeGrants) Check() error {
	if selects := c.GrantOptions != (GrantOptions{}); selects == c.All {
		return errors.New("select the grants with --user, --client, --workspace or --issued-before, or use only " +
			"--all for every grant")
	}
	c.Report = progressTo(os.Stderr)
	return nil
}

// progressTo returns a function that writes how many grants are revoked, at most once in five seconds.
func progressTo(out io.Writer) func(revoked int) {
	const every = 5 * time.Second
	last := time.Now()
	return func(revoked int) {
		if time.Since(last) >= every {
			_, _ = fmt.Fprintf(out, "Revoked %d grants so far.\n", revoked)
			last = time.Now()
		}
	}
}

func (c RevokeGrants) run(ctx context.Context, s *Service) (Result, error) {
	filter, err := s.filter(ctx, c.GrantOptions)
	if err != nil {
		return nil, err
	}
	revoked := 0
	var after grant.Key
	for before := -1; before < revoked; { // repeat until no grant is left: some may be created meanwhile
		before = revoked
		for more := true; more; more = after != (grant.Key{}) {
			var ended []grant.Grant
			if ended, after, err = s.Store.EndGrants(ctx, filter, after, audit.Operator); err != nil {
				const format = "%s revoked; run the command again to revoke the rest: %w"
				return nil, fmt.Errorf(format, plural(revoked, "grant"), err)
			}
			if len(ended) > 0 {
				s.PropagateRevocation(ctx, ended)
				revoked += len(ended)
				c.Report(revoked)
			}
		}
	}
	return Outcome{"Revoked: " + plural(revoked, "grant") + ".", map[string]any{"revokedGrants": revoked}}, nil
}
