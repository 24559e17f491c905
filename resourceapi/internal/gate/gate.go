// Package gate answers: may this request be served, and if not, what is the first thing that is wrong?
//
// Every tenant-scoped route goes through one function, admit, whose numbered steps are the rows of the contract's
// table (section 6). A route names what it needs and cannot reorder or leave out a step. The MCP endpoint goes through
// it as well; what is different there (contract, section 7a) is said by Resource alone. Two things hold throughout:
//
//   - What a credential may do is read from Postgres at each request, never remembered (spec 1, 5.3).
//   - A later step may be prepared early, so that one trip to Postgres answers everything, but is never answered early.
package gate

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/unknown"
)

// A Need is what a route asks of its callers. The zero Need asks for membership and no more.
type Need struct {
	Module     string // as account.standings names it
	Permission perm.Permission
}

// A Caller is who may proceed, and where.
type Caller struct {
	WorkspaceID uuid.UUID
	User        uuid.UUID
	ClientID    string        // as the client knows itself; "" where the credential is a personal access token
	Kind        string        // of the credential, as package standing names it
	Permissions perm.Set      // what the credential may do there at this moment
	EndsAt      time.Time     // of the grant or the personal access token
	Module      *apierr.Error // for assistants alone, who are told by the tool: why the module is off
}

// A Prepare reads a request as far as that takes no store. Its error is step 5, and waits for its turn.
type Prepare func(r *http.Request, workspaceID uuid.UUID) (Plan, error)

// A Plan is how a route goes on.
type Plan struct {
	// Need stands in for the route's, where the request says what it is about. The zero Need leaves the route's.
	Need Need
	// Ask reads the standing, and may fetch in the same trip what Serve will answer with. Nil: the standing alone.
	Ask func(context.Context, standing.Query) (standing.Standing, error)
	// Search finds what Serve will answer with, by a search, of which a credential and a workspace have few at once. It
	// runs before Serve, once every step is passed, and does not wait for the caller. Nil: there is nothing to search
	// for.
	Search func(ctx context.Context, caller Caller) error
	// Serve answers. It runs only once every step is passed; its error is step 6.
	Serve func(w http.ResponseWriter, r *http.Request, caller Caller) error
}

// Serving is the Prepare of a route with nothing to prepare. It takes no query parameters.
func Serving(serve func(http.ResponseWriter, *http.Request, Caller) error) Prepare {
	return func(r *http.Request, _ uuid.UUID) (Plan, error) {
		if err := unknown.Parameters(r.URL.RawQuery); err != nil {
			return Plan{}, err
		}
		return Plan{Serve: serve}, nil
	}
}

// ServingAnyQuery is Serving for a route that looks at the query parameters itself, or does not mind them.
func ServingAnyQuery(serve func(http.ResponseWriter, *http.Request, Caller) error) Prepare {
	return func(*http.Request, uuid.UUID) (Plan, error) { return Plan{Serve: serve}, nil }
}

// Standings reads standings. It returns standing.ErrUnknown where there is no such credential.
type Standings interface {
	Standing(ctx context.Context, q standing.Query) (standing.Standing, error)
	// EndReplaced ends the tokens that a personal access token replaces.
	EndReplaced(ctx context.Context, token uuid.UUID) error
	// Askable is what the client of a grant may ask its user for.
	Askable(ctx context.Context, grant uuid.UUID) (perm.Set, error)
}

// A Resource is what a gate stands before (contract, section 1).
type Resource struct {
	path perm.Resource
	// forAssistants: the workspace is the credential's own, as hosted connectors cannot send a header; the workspace's
	// LLM integration must be on, whatever the credential; and a module that is off is for the tool to say (contract,
	// section 7a).
	forAssistants bool
}

// The resources of this service.
var (
	API = Resource{path: perm.API}
	MCP = Resource{path: perm.MCP, forAssistants: true}
)

// Deps are what a Gate is made of.
type Deps struct {
	Resource  Resource
	BaseURL   string // without a trailing slash
	Tokens    Tokens
	Standings Standings
	Used      func(standing.Standing) // told of each valid credential; must not block
	Bounds    *Bounds                 // one for all gates of a process
	Log       *slog.Logger
}

// A Gate guards routes. It is safe for concurrent use.
type Gate struct {
	resource  string   // what an access token must be made for
	metadata  string   // where the resource describes itself (RFC 9728)
	useful    perm.Set // what a connector can be granted here
	assisting bool     // Resource.forAssistants
	tokens    Tokens
	standings Standings
	used      func(standing.Standing)
	bounds    *Bounds
	log       *slog.Logger
}

// New makes the gate of one resource.
func New(d Deps) *Gate {
	return &Gate{
		resource: d.BaseURL + string(
			d.Resource.path,
		),
		metadata:  d.BaseURL + "/.well-known/oauth-protected-resource" + string(d.Resource.path),
		useful:    d.Resource.path.ForConnectors(),
		assisting: d.Resource.forAssistants,
		tokens:    d.Tokens,
		standings: d.Standings,
		used:      d.Used,
		bounds:    d.Bounds,
		log:       d.Log,
	}
}

// Guard serves the requests that pass, and refuses the others.
func (g *Gate) Guard(need Need, prepare Prepare) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.serve(w, r, need, prepare); err != nil {
			g.Refuse(w, r, err)
		}
	})
}

// serve answers within the bounds of the credential, or returns the first refusal.
func (g *Gate) serve(w http.ResponseWriter, r *http.Request, need Need, prepare Prepare) (err error) {
	held, err := g.identify(r)
	if err != nil {
		return err
	}
	turn, err := g.bounds.requests.Enter(r.Context(), w.Header(), held.key())
	if err != nil {
		return err
	}
	defer func() { endTurn(turn, err) }()
	hold := g.bounds.bytes.Hold(held.key())
	defer hold.Release()
	r = r.WithContext(context.WithValue(r.Context(), roomKey{}, hold))
	plan, caller, err := g.admit(r, held, need, prepare)
	if err != nil {
		return err
	}
	if plan.Search != nil {
		leave, err := g.bounds.enterSearch(w.Header(), r, held, turn, caller.WorkspaceID)
		if err != nil {
			return err
		}
		if err := search(r.Context(), plan, caller, leave); err != nil {
			return err
		}
	}
	reads := workspaceReads{reads: g.bounds.reads, workspaceID: caller.WorkspaceID}
	return plan.Serve(w, r.WithContext(context.WithValue(r.Context(), readsKey{}, reads)), caller)
}

// search runs the search of a plan. Other searches may begin as soon as the store has answered: a caller who reads the
// answer slowly does not keep them out.
func search(ctx context.Context, plan Plan, caller Caller, leave func(error)) (err error) {
	defer func() { leave(err) }()
	return plan.Search(ctx, caller)
}

// identify is step 1 of admit as far as the text of the credential tells.
func (g *Gate) identify(r *http.Request) (presented, error) {
	token, err := readBearer(r.Header)
	switch {
	case errors.Is(err, errNoBearer):
		return presented{}, g.missing()
	case err != nil:
		return presented{}, g.unauthenticated("Send one Authorization header with one bearer token.")
	}
	return g.present(r.Context(), token)
}

// admit asks the questions of the contract in their order, and returns the first refusal. held is what identify
// returned.
func (g *Gate) admit(r *http.Request, held presented, need Need, prepare Prepare) (Plan, Caller, error) {
	// Prepared early, answered in their turn: 2 and 5.
	workspaceID, workspaceErr, err := g.workspace(r, held)
	if err != nil {
		return Plan{}, Caller{}, err
	}
	plan, planErr := Plan{}, error(nil)
	if workspaceErr == nil {
		plan, planErr = prepare(r, workspaceID)
	}
	if plan.Need != (Need{}) {
		need = plan.Need
	}

	// 1. The credential, as Postgres knows it.
	s, err := g.ask(r.Context(), held, workspaceID, need, plan)
	if err != nil {
		return Plan{}, Caller{}, err
	}
	if s.Replaces {
		if err := g.standings.EndReplaced(r.Context(), s.CredentialID); err != nil {
			return Plan{}, Caller{}, err
		}
	}
	g.used(s)
	noteCaller(r.Context(), s)

	steps := []func() error{
		func() error { return workspaceErr },                                      // 2. the workspace is named
		func() error { return g.access(r.Context(), held, s, workspaceID, need) }, // 3. the caller may do this there
		func() error { return g.refuseModule(s) },                                 // 4. the module works there
		func() error { return planErr },                                           // 5. the parameters make sense
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return Plan{}, Caller{}, err
		}
	}
	return plan, g.caller(held, s, workspaceID), nil
}

// noteCaller says in the access log whose credential was used.
func noteCaller(ctx context.Context, s standing.Standing) {
	c := web.Caller{Credential: s.CredentialID, Workspace: s.CredentialWorkspace, User: s.UserID}
	if s.ClientID != nil {
		c.Client = *s.ClientID
	}
	web.NoteCaller(ctx, c)
}

func (g *Gate) caller(held presented, s standing.Standing, workspaceID uuid.UUID) Caller {
	c := Caller{
		WorkspaceID: workspaceID,
		User:        s.UserID,
		Kind:        s.Kind,
		EndsAt:      s.EndsAt,
		Permissions: held.granted(s).Intersect(s.MemberPermissions),
	}
	if held.claims != nil {
		c.ClientID = held.claims.ClientID
	}
	if g.assisting {
		c.Module = module(s)
	}
	return c
}

// workspace is where the request acts: what the header names, or the credential's own workspace. A token names that; a
// personal access token's is known to Postgres alone. The first error is step 2, the second ends the questions here.
func (g *Gate) workspace(r *http.Request, held presented) (workspaceID uuid.UUID, unnamed, failed error) {
	switch {
	case !g.assisting:
		workspaceID, unnamed = readWorkspace(r.Header)
		return workspaceID, unnamed, nil
	case held.claims != nil:
		return held.claims.WorkspaceID, nil, nil
	}
	s, err := g.ask(r.Context(), held, uuid.Nil, Need{}, Plan{})
	return s.CredentialWorkspace, nil, err
}

func (g *Gate) ask(
	ctx context.Context,
	held presented,
	workspaceID uuid.UUID,
	need Need,
	plan Plan,
) (standing.Standing, error) {
	question := held.question
	question.WorkspaceID, question.Module = workspaceID, need.Module
	ask := plan.Ask
	if ask == nil {
		ask = g.standings.Standing
	}
	s, err := ask(ctx, question)
	if errors.Is(err, standing.ErrUnknown) {
		return standing.Standing{}, g.unauthenticated(badCredential)
	}
	if err != nil {
		return standing.Standing{}, err
	}
	return s, g.judge(held, s)
}
