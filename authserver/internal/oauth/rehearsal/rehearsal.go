// Package rehearsal says what a planned change of a workspace would end, pause, narrow and refuse, without making it
// (contract, section 5b). Pages show it before a change is confirmed, and callers of the API ask for it.
//
// It has no rules of its own. The store makes the change with the service that makes it otherwise, in a transaction
// that it rolls back, and reads the standing of each credential before and after it; standing.Decide then says which of
// the requests of the last 30 days would be refused.
//
//	R1  What it says is what happens: the change, once made, ends, pauses, narrows and refuses just that.
//	R2  It changes nothing: no row, event, mail, cache or key of Redis.
//	R3  A change that the service refuses is refused with the same error.
package rehearsal

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// Limits.
const (
	// MaxCredentials is the most connections and tokens that a rehearsal compares, so that an answer stays below 4 MB.
	MaxCredentials = 12_000
	// Days is the number of days, with today, whose requests are looked at.
	Days = 30

	inFlight  = 16 // of a workspace, running or waiting
	runAtOnce = 2  // in the process, each with a connection to Postgres
	wait      = 10 * time.Second
)

// Errors of Run, besides those of the change.
var (
	// ErrBusy reports that other rehearsals are running.
	ErrBusy = errors.New("other rehearsals are running")
	// ErrTooMany reports that the change concerns more than MaxCredentials.
	ErrTooMany = errors.New("too many connections and tokens to rehearse the change")
	// ErrNoIssuer reports that the workspace trusts no such issuer.
	ErrNoIssuer = errors.New("no such trusted issuer")
)

// A Scope limits what of a workspace a change can concern.
type Scope struct {
	UserID   *uuid.UUID // only credentials, webhooks and invitations of this user, or nil
	ClientID *uuid.UUID // only connections of this client and webhooks that they added, or nil
}

// A Credential is a connection or a personal access token.
type Credential struct {
	standing.Standing        // State is "" if it no longer exists
	Name              string // of the application or the token
	Person            string // name of its user
}

// IsToken reports whether it is a personal access token, and not a connection.
func (c Credential) IsToken() bool { return c.Kind == standing.PersonalAccessToken }

// A Module says whether a workspace can use a module.
type Module struct{ Enabled, Provisioned bool }

// A State is what a workspace has at one time.
type State struct {
	Credentials []Credential // that have not ended
	Modules     map[string]Module
	Webhooks    []uuid.UUID // that get events
	Invitations []uuid.UUID // that can be accepted
}

// A Use is how often a credential did an operation, without the requests that were refused.
type Use struct {
	CredentialID uuid.UUID
	Operation    string
	Requests     int64
}

// A Store reads workspaces. Its errors wrap store.ErrUnavailable.
type Store interface {
	// Rehearse runs act in a transaction that it rolls back, and returns what of the scope the workspace has before and
	// after. Both states have the same credentials, in the same order. Changes that the store leaves to the background
	// count as made. It returns ErrTooMany, or the error of act.
	Rehearse(
		ctx context.Context, workspaceID uuid.UUID, scope Scope, act func(context.Context) error,
	) (before, after State, err error)
	// Uses adds up the usage of credentials since a day, by credential and operation.
	Uses(ctx context.Context, workspaceID uuid.UUID, credentials []uuid.UUID, since time.Time) ([]Use, error)
}

// Rehearsals rehearses changes. It is safe for concurrent use.
type Rehearsals struct {
	Store       Store
	Members     *membership.Service
	Connections *consent.Connections
	Clients     *client.Registry
	// DisableModule switches a module of a workspace off.
	DisableModule func(ctx context.Context, workspaceID uuid.UUID, module string, event audit.Event) error
	Now           func() time.Time

	turns *inflight.Requests[uuid.UUID] // by workspace
}

// New returns Rehearsals that run one rehearsal of a workspace at once, and two in all.
func New(r Rehearsals) *Rehearsals {
	r.turns = inflight.New[uuid.UUID](inflight.Bounds{InFlight: inFlight, AtOnce: 1, Total: runAtOnce, Wait: wait})
	return &r
}

// Run says what the change would do if the actor made it now. It returns ErrBusy, ErrTooMany, or the error of the
// change. The caller has checked what the actor needs to make it.
func (r *Rehearsals) Run(ctx context.Context, by audit.Actor, change Change) (found Outcome, err error) {
	demands, err := openapi.Demands()
	if err != nil {
		return Outcome{}, err
	}
	err = audit.InTurn(ctx, r.turns, by.WorkspaceID, func() error {
		act := func(ctx context.Context) error { return change.act(ctx, r, by) }
		before, after, err := r.Store.Rehearse(ctx, by.WorkspaceID, change.scope, act)
		if err != nil {
			return err
		}
		var refused map[uuid.UUID][]string
		found, refused = comparison{by.WorkspaceID, before, after, demands}.outcome()
		found.Since = r.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1-Days)
		return r.addUses(ctx, by, &found, refused)
	})
	if errors.Is(err, audit.ErrBusy) {
		err = ErrBusy
	}
	return found, err
}

// usesAtOnce is the number of credentials whose usage one statement reads.
const usesAtOnce = 1_000

// addUses adds the requests to the outcome whose operation is among those that the change refuses the credential. An
// actor without account:read:members learns of no requests of others (contract, section 5b).
func (r *Rehearsals) addUses(
	ctx context.Context, by audit.Actor, found *Outcome, refused map[uuid.UUID][]string,
) error {
	all := by.Permissions.Has(perm.AccountReadMembers)
	at, ids := map[uuid.UUID]int{}, []uuid.UUID(nil)
	for i, a := range found.Affected {
		at[a.CredentialID] = i
		if len(refused[a.CredentialID]) > 0 && (all || a.UserID == by.UserID) {
			ids = append(ids, a.CredentialID)
		}
	}
	for part := range slices.Chunk(ids, usesAtOnce) {
		uses, err := r.Store.Uses(ctx, by.WorkspaceID, part, found.Since)
		if err != nil {
			return err
		}
		found.addUses(slices.DeleteFunc(uses, func(use Use) bool {
			return use.Requests == 0 || !slices.Contains(refused[use.CredentialID], use.Operation)
		}), at)
	}
	found.finish()
	return nil
}

// A Change is a planned change.
type Change struct {
	scope Scope
	act   func(ctx context.Context, r *Rehearsals, by audit.Actor) error
}
