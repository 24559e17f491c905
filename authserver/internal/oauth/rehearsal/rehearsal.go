// Package rehearsal says what a planned change of a workspace would end, pause, narrow and refuse, without making it
// (contract, section 5b). Pages show it before a change is confirmed, and callers of the API ask for it.
//
// It has no rules of its own. The store makes the change with the service that makes it otherwise, in a transaction
// that it rolls back, and reads the standing of each credential before and after it; standing.Decide then says which of
// the requests of the last 30 days would be refused.
//
//	R1  What it says is what happens: the change, once made, ends, pauses, narrows and refuses just that.
//	    All parts start from the same: if that is changed meanwhile, the rehearsal begins anew, once.
//	R2  It changes nothing: no row, event, mail, cache or key of Redis.
//	R3  A change that the service refuses is refused with the same error.
//	R4  It holds up others only shortly: it makes the change anew for each part of the credentials, and lets go of
//	    what the change locks, and of its turn, in between.
package rehearsal

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// Limits.
const (
	// MaxCredentials is the most connections and tokens that a rehearsal compares, so that an answer stays below 4 MB.
	MaxCredentials = 12_000
	// PartSize is how many of them one transaction compares: it holds its locks for about 0.1 s.
	PartSize = 500
	// Days is the number of days, with today, whose requests are looked at.
	Days = 30

	inFlight  = 16               // rehearsals of a workspace, running or waiting
	together  = 16               // rehearsals that have their turn, each with its credentials in memory
	runAtOnce = 2                // parts in the process, each with a connection to Postgres
	wait      = 10 * time.Second // for a turn
	longest   = 10 * time.Second // of a rehearsal that has its turn: no part begins later
	tries     = 2                // of a rehearsal, if the workspace changes meanwhile
)

// Errors of Run, besides those of the change.
var (
	// ErrBusy reports that other rehearsals are running, or that the workspace changes meanwhile.
	ErrBusy = errors.New("other rehearsals are running, or the workspace changes")
	// ErrTooMany reports that the change concerns more than MaxCredentials.
	ErrTooMany = errors.New("too many connections and tokens to rehearse the change")
	// ErrTooSlow reports that it takes too long now to find out what the change would do.
	ErrTooSlow = errors.New("the change takes too long to rehearse")
	// ErrNoIssuer reports that the workspace trusts no such issuer.
	ErrNoIssuer = errors.New("no such trusted issuer")

	errMoved = errors.New("the workspace changed between two parts")
)

// A Scope limits what of a workspace a change can concern.
type Scope struct {
	UserID   *uuid.UUID // only credentials, webhooks and invitations of this user, or nil
	ClientID *uuid.UUID // only connections of this client and webhooks that they added, or nil
	// Assistants means only connections of assistants. All webhooks and invitations are compared.
	Assistants bool
}

// A Credential is a connection or a personal access token.
type Credential struct {
	ID     uuid.UUID
	UserID uuid.UUID
	Hash   []byte // of a token, or nil
	Name   string // of the application or the token
	Person string // name of its user
}

// IsToken reports whether it is a personal access token, and not a connection.
func (c Credential) IsToken() bool { return c.Hash != nil }

// A Part is what one transaction compares.
type Part struct {
	Scope
	Credentials []Credential // at most PartSize
	Others      bool         // compare webhooks and invitations too
}

// A Module says whether a workspace can use a module.
type Module struct{ Enabled, Provisioned bool }

// A State is what a workspace has at one time.
type State struct {
	Standings   []standing.Standing // of the part's credentials; State is "" if one no longer exists
	Modules     map[string]Module
	Base        string      // what else a change starts from: the switch, the policy, the member's permissions
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
	// Concerned returns the credentials of the scope that have not ended, or ErrTooMany.
	Concerned(ctx context.Context, workspaceID uuid.UUID, scope Scope) ([]Credential, error)
	// Rehearse runs act in a transaction that it rolls back, and returns what of the part the workspace has before and
	// after. What others commit between the two is no difference. Changes that the store leaves to the background count
	// as made. It returns the error of act, or ErrTooSlow if a statement took too long.
	Rehearse(
		ctx context.Context, workspaceID uuid.UUID, part Part, act func(context.Context) error,
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

	turns *inflight.Requests[uuid.UUID] // of rehearsals, by workspace
	parts *inflight.Requests[uuid.UUID] // of their parts
}

// New returns Rehearsals that run one rehearsal of each workspace at once, and 16 in all. Two parts run at once. The
// parts of all rehearsals take turns in the order in which they arrive, so that a small rehearsal does not wait for the
// end of large ones, unless 16 are running. Finding the credentials takes a turn, as a part does.
func New(r Rehearsals) *Rehearsals {
	r.turns = inflight.New[uuid.UUID](inflight.Bounds{InFlight: inFlight, AtOnce: 1, Total: together, Wait: wait})
	r.parts = inflight.New[uuid.UUID](inflight.Bounds{InFlight: 1, AtOnce: 1, Total: runAtOnce, Wait: wait})
	return &r
}

// Run says what the change would do if the actor made it now. It returns ErrBusy, ErrTooMany, ErrTooSlow, or the error
// of the change. The caller has checked what the actor needs to make it.
func (r *Rehearsals) Run(ctx context.Context, by audit.Actor, change Change) (Outcome, error) {
	demands, err := openapi.Demands()
	if err != nil {
		return Outcome{}, err
	}
	var all sum
	err = audit.InTurn(ctx, r.turns, by.WorkspaceID, func() error {
		one, err := run{
			Rehearsals: r,
			by:         by,
			change:     change,
			demands:    demands,
			began:      r.Now(),
		}, errMoved
		for try := 0; try < tries && errors.Is(err, errMoved); try++ {
			all, err = one.sum(ctx)
		}
		return err
	})
	if errors.Is(err, audit.ErrBusy) || errors.Is(err, errMoved) {
		err = ErrBusy
	}
	if err != nil {
		return Outcome{}, err
	}
	return all.outcome(), nil
}

// A run is one rehearsal.
type run struct {
	*Rehearsals
	by      audit.Actor
	change  Change
	demands map[string]standing.Demand // of each operation
	began   time.Time
}

// sum adds up all parts. It returns errMoved if they do not start from the same.
func (r run) sum(ctx context.Context) (all sum, err error) {
	all.Since = r.began.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1-Days)
	var concerned []Credential
	err = audit.InTurn(ctx, r.parts, r.by.WorkspaceID, func() (err error) {
		concerned, err = r.Store.Concerned(ctx, r.by.WorkspaceID, r.change.scope)
		return err
	})
	for first := true; err == nil && (first || len(concerned) > 0); first = false {
		if r.Now().Sub(r.began) > longest {
			return all, ErrTooSlow
		}
		n := min(PartSize, len(concerned))
		part := Part{Scope: r.change.scope, Credentials: concerned[:n], Others: first}
		concerned = concerned[n:]
		err = audit.InTurn(ctx, r.parts, r.by.WorkspaceID, func() error { return r.add(ctx, &all, part) })
	}
	return all, err
}

// add adds what the change does to a part. An actor without account:read:members learns of no requests of others
// (contract, section 5b).
func (r run) add(ctx context.Context, all *sum, part Part) error {
	act := func(ctx context.Context) error { return r.change.act(ctx, r.Rehearsals, r.by) }
	before, after, err := r.Store.Rehearse(ctx, r.by.WorkspaceID, part, act)
	if err != nil {
		return err
	}
	if !all.startsFrom(before) {
		return errMoved
	}
	c := comparison{r.by.WorkspaceID, before, after, r.demands}
	all.addOthers(before, after)
	at, seen := map[uuid.UUID]int{}, []uuid.UUID(nil) // positions in the part
	only, _ := r.by.Sees(nil)
	for i, one := range part.Credentials {
		if at[one.ID] = i; c.differs(i) && (only == nil || one.UserID == *only) {
			seen = append(seen, one.ID)
		}
	}
	refused := make([]int64, len(part.Credentials))
	if len(seen) > 0 {
		uses, err := r.Store.Uses(ctx, r.by.WorkspaceID, seen, all.Since)
		if err != nil {
			return err
		}
		for _, use := range uses {
			if i := at[use.CredentialID]; use.Requests > 0 && c.refused(i, use.Operation) {
				refused[i] += use.Requests
				all.addUse(use)
			}
		}
	}
	for i, one := range part.Credentials {
		all.addCredential(one, c, i, refused[i])
	}
	return nil
}

// A Change is a planned change.
type Change struct {
	scope Scope
	act   func(ctx context.Context, r *Rehearsals, by audit.Actor) error
}
