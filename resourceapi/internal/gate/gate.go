// Package gate decides whether a request may be served and, if not, which refusal it gets.
//
// Every tenant-scoped route goes through admit, whose numbered steps are the rows of the contract's table (section 6).
// A route declares what it needs; it cannot reorder or skip a step. The MCP endpoint goes through admit as well; its
// differences (contract, section 7a) are in Resource alone. Two rules hold:
//
//   - The permissions of a credential are read from Postgres at each request and never cached (spec 1, 5.3).
//   - A later step may be prepared early, so that one round trip to Postgres suffices, but never refuses early.
package gate

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// A Caller is the admitted user and the workspace of the request.
type Caller struct {
	WorkspaceID uuid.UUID
	User        uuid.UUID
	ClientID    string        // empty for a personal access token
	Credential  uuid.UUID     // the personal access token or grant
	Kind        string        // of the credential, as named by package standing
	Permissions perm.Set      // what the credential may do there at this moment
	EndsAt      time.Time     // when the personal access token or the grant ends
	Module      *apierr.Error // why the module is unavailable; set on the MCP endpoint only
	// StillAdmitted returns an error if the request of an export would be refused now, because its credential has ended
	// or its user has lost the permission. It is nil for other requests, which are short.
	StillAdmitted func(context.Context) error

	reads *inflight.Requests[uuid.UUID] // ReadInTurn
}

// A Prepare parses a request without store access. Its error is step 5 and is returned in that order.
type Prepare func(r *http.Request, workspaceID uuid.UUID) (Plan, error)

// A Plan is how a route continues.
type Plan struct {
	// Need replaces the permission that the route needs, unless it is empty.
	Need perm.Permission
	// ReadStanding reads the standing and may fetch data for Serve in the same round trip. If nil, only the standing
	// is read.
	ReadStanding func(context.Context, standing.Query) (standing.Standing, error)
	// Search runs a search for Serve. A credential and a workspace may run only a few at once. It runs after all
	// steps passed and before Serve, and must not wait for the client. If nil, there is no search.
	Search func(ctx context.Context, caller Caller) error
	// Export means that Serve streams records for a long time. MaxExports limits the exports of a credential.
	Export bool
	// Serve writes the response. It runs only after all steps passed; its error is step 6.
	Serve func(w http.ResponseWriter, r *http.Request, caller Caller) error
}

// ServingAnyQuery returns the Prepare of a route with nothing to prepare that checks the query parameters itself or
// ignores them.
func ServingAnyQuery(serve func(http.ResponseWriter, *http.Request, Caller) error) Prepare {
	return func(*http.Request, uuid.UUID) (Plan, error) { return Plan{Serve: serve}, nil }
}

// Standings reads standings. It returns standing.ErrUnknown if there is no such credential.
type Standings interface {
	Standing(ctx context.Context, q standing.Query) (standing.Standing, error)
	// StandingAndProfile reads the standing and the profile of a credential in one round trip.
	StandingAndProfile(ctx context.Context, q standing.Query) (standing.Standing, standing.Profile, error)
	// EndReplaced revokes the tokens that a personal access token replaces.
	EndReplaced(ctx context.Context, token uuid.UUID) error
	// Askable returns the permissions that the client of a grant may request from its user.
	Askable(ctx context.Context, grant, workspaceID uuid.UUID) (perm.Set, error)
}

// Deps are the dependencies of a Gate.
type Deps struct {
	Resource  Resource
	BaseURL   string // without a trailing slash
	Keys      *Keys
	Standings Standings
	RecordUse func(standing.Standing, netip.Addr) // called for each valid credential; must not block
	Bounds    *Bounds                             // shared by all gates of a process
	Log       *slog.Logger
}

// A Gate guards routes. It is safe for concurrent use.
type Gate struct {
	Deps

	audience string   // that an access token must have
	metadata string   // URL of the resource metadata (RFC 9728)
	useful   perm.Set // what a connector can be granted here
}

// New returns the gate of one resource.
func New(d Deps) *Gate {
	return &Gate{
		Deps:     d,
		audience: d.BaseURL + string(d.Resource.path),
		metadata: d.BaseURL + metadataPath + string(d.Resource.path),
		useful:   d.Resource.path.ForConnectors(),
	}
}

// Guard serves admitted requests and refuses the others. The caller needs the permission, and the workspace its module;
// without a permission, membership of the workspace suffices, whatever its modules.
func (g *Gate) Guard(need perm.Permission, prepare Prepare) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.serve(w, r, need, prepare); err != nil {
			g.Refuse(w, r, err)
		}
	})
}

// serve handles a request within the bounds of the credential, or returns the first refusal.
func (g *Gate) serve(w http.ResponseWriter, r *http.Request, need perm.Permission, prepare Prepare) (err error) {
	held, err := g.identify(r)
	if err != nil {
		return err
	}
	turn, err := g.Bounds.requests.Enter(r.Context(), w.Header(), held.key())
	if err != nil {
		return err
	}
	defer func() { endTurn(turn, err) }()
	hold := g.Bounds.bytes.Hold(held.key())
	defer hold.Release()
	r = r.WithContext(context.WithValue(r.Context(), bytesKey{}, hold))
	plan, caller, err := g.admit(r, held, need, prepare)
	if err != nil {
		return err
	}
	if plan.Search != nil {
		leave, err := g.Bounds.enterSearch(w.Header(), r, held, turn, caller.WorkspaceID)
		if err != nil {
			return err
		}
		if err := search(r.Context(), plan, caller, leave); err != nil {
			return err
		}
	}
	if plan.Export {
		export, err := g.Bounds.exports.Enter(r.Context(), held.key())
		if err != nil {
			return inflight.Refusal(err,
				"This credential has two exports in flight, which is the maximum. Wait until one finishes.")
		}
		defer func() { endTurn(export, err) }()
		caller.StillAdmitted = func(ctx context.Context) error {
			return g.readmit(ctx, held, caller.WorkspaceID, cmp.Or(plan.Need, need))
		}
	}
	return plan.Serve(w, r, caller)
}

// search runs the search of a plan. It frees the search slot as soon as the store has responded, so that a client
// that reads slowly does not block other searches.
func search(ctx context.Context, plan Plan, caller Caller, leave func(error)) (err error) {
	defer func() { leave(err) }()
	return plan.Search(ctx, caller)
}

// admit checks the steps of the contract in order and returns the first refusal. held is the result of identify.
func (g *Gate) admit(r *http.Request, held presented, need perm.Permission, prepare Prepare) (Plan, Caller, error) {
	// Steps 2 and 5 are prepared early and refuse in their order.
	workspaceID, workspaceErr, err := g.workspace(r, held)
	if err != nil {
		return Plan{}, Caller{}, err
	}
	plan, planErr := Plan{}, error(nil)
	if workspaceErr == nil {
		plan, planErr = prepare(r, workspaceID)
	}
	if plan.Need != "" {
		need = plan.Need
	}

	// 1. The credential is valid according to Postgres.
	s, err := g.use(r.Context(), held, workspaceID, need, plan)
	if err != nil {
		return Plan{}, Caller{}, err
	}
	refusal := g.decide(held, s, workspaceID, need)
	steps := []func() error{
		func() error { return workspaceErr },                                  // 2. the workspace is named
		func() error { return g.access(r.Context(), held, s, need, refusal) }, // 3. the caller may do this there
		func() error { return g.refuseModule(refusal) },                       // 4. the module works there
		func() error { return planErr },                                       // 5. the parameters are valid
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return Plan{}, Caller{}, err
		}
	}
	c := Caller{
		WorkspaceID: workspaceID,
		User:        s.UserID,
		Credential:  s.CredentialID,
		Kind:        s.Kind,
		EndsAt:      s.EndsAt,
		Permissions: held.granted(s).Intersect(s.MemberPermissions),
		reads:       g.Bounds.reads,
	}
	if held.Claims != nil {
		c.ClientID = held.Claims.ClientID
	}
	if g.Resource.forAssistants {
		c.Module = module(refusal)
	}
	return plan, c, nil
}

// use reads the standing of a credential, ends the tokens that it replaces, and records its use.
func (g *Gate) use(
	ctx context.Context, held presented, workspaceID uuid.UUID, need perm.Permission, plan Plan,
) (standing.Standing, error) {
	s, err := g.readStanding(ctx, held, workspaceID, need, plan)
	if err != nil {
		return standing.Standing{}, err
	}
	if s.Replaces {
		if err := g.Standings.EndReplaced(ctx, s.CredentialID); err != nil {
			return standing.Standing{}, err
		}
	}
	g.RecordUse(s, web.ClientAddress(ctx))
	return s, nil
}

// workspace returns the workspace of the request: the one in the header or, on the MCP endpoint, the credential's
// own. An access token names it; for a personal access token it is read from Postgres. unnamed is step 2; failed ends
// the request at once.
func (g *Gate) workspace(r *http.Request, held presented) (workspaceID uuid.UUID, unnamed, failed error) {
	switch {
	case !g.Resource.forAssistants:
		workspaceID, unnamed = readWorkspace(r.Header)
		return workspaceID, unnamed, nil
	case held.Claims != nil:
		return held.Claims.WorkspaceID, nil, nil
	}
	s, err := g.readStanding(r.Context(), held, uuid.Nil, "", Plan{})
	return s.CredentialWorkspace, nil, err
}

func (g *Gate) readStanding(
	ctx context.Context, held presented, workspaceID uuid.UUID, need perm.Permission, plan Plan,
) (standing.Standing, error) {
	question := held.Query
	question.WorkspaceID, question.Module = workspaceID, need.Module()
	read := plan.ReadStanding
	if read == nil {
		read = g.Standings.Standing
	}
	s, err := read(ctx, question)
	if errors.Is(err, standing.ErrUnknown) {
		held.RecordStanding(ctx, nil)
		return standing.Standing{}, g.unauthenticated(badCredential)
	}
	if err != nil {
		return standing.Standing{}, err
	}
	held.RecordStanding(ctx, &s)
	return s, g.checkStanding(held, s)
}

// A Resource is a protected resource (contract, section 1).
type Resource struct {
	path   perm.Resource
	suffix string // of its display name, after the name of the deployment
	// forAssistants means that the workspace is the credential's own, since hosted connectors cannot send a header;
	// that LLM integration must be on in the workspace, whatever the credential; and that the tool reports a module
	// that is off (contract, section 7a).
	forAssistants bool
}

// The resources of this service.
var (
	API = Resource{path: perm.API, suffix: " API"}
	MCP = Resource{path: perm.MCP, suffix: " for assistants", forAssistants: true}
)

// metadataPath is the prefix of a resource's metadata document (RFC 9728, section 3.1); the path of the resource
// follows.
const metadataPath = "/.well-known/oauth-protected-resource"

// metadata is the document of a resource (RFC 9728).
type metadata struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	Name                 string   `json:"resource_name"`
}

// MetadataRoutes returns the handlers of the resources' metadata by path and method. baseURL is the issuer and has no
// trailing slash. brand is the name of the deployment.
//
// Clients find the metadata by the challenge of a 401 or by the well-known path, also from web pages, so any origin may
// read it and nothing redirects. Some connector clients first try the path without a resource or the path below the MCP
// endpoint.
func MetadataRoutes(baseURL, brand string) map[string]map[string]http.Handler {
	routes := map[string]map[string]http.Handler{}
	for path, resource := range map[string]Resource{
		metadataPath + string(perm.API): API,
		metadataPath + string(perm.MCP): MCP,
		metadataPath:                    MCP,
		string(perm.MCP) + metadataPath: MCP,
	} {
		document := metadata{
			Resource:             baseURL + string(resource.path),
			AuthorizationServers: []string{baseURL},
			BearerMethods:        []string{"header"},
			ScopesSupported:      resource.path.ForConnectors().Strings(),
			Name:                 brand + resource.suffix,
		}
		routes[path] = map[string]http.Handler{
			"GET": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				allowEveryOrigin(w.Header())
				web.JSON(w, http.StatusOK, document)
			}),
			"OPTIONS": http.HandlerFunc(preflightMetadata),
		}
	}
	return routes
}

// preflightMetadata handles OPTIONS: any origin may send the headers that connector clients add.
func preflightMetadata(w http.ResponseWriter, _ *http.Request) {
	allowEveryOrigin(w.Header())
	w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
	w.Header().Set("Access-Control-Allow-Headers", "*, Authorization")
	w.Header().Set("Access-Control-Max-Age", "86400") // seconds
	w.WriteHeader(http.StatusNoContent)
}

func allowEveryOrigin(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "WWW-Authenticate")
}
