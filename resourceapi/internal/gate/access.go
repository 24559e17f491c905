package gate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/contract/usage"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// decide decides steps 3 and 4. need is empty if membership suffices.
func (g *Gate) decide(
	held presented, s standing.Standing, workspaceID uuid.UUID, need perm.Permission,
) standing.Refusal {
	s.CredentialPermissions = held.granted(s)
	demand := standing.Demand{WorkspaceID: workspaceID, ForAssistants: g.Resource.forAssistants}
	if need != "" {
		demand.Permissions = perm.Set{need}
	}
	return s.Decide(demand)
}

// access is step 3: the refusal of a credential that may not do this in the workspace now. A workspace that does not
// exist and one that the caller does not belong to get the same response.
func (g *Gate) access(
	ctx context.Context, held presented, s standing.Standing, need perm.Permission, refusal standing.Refusal,
) error {
	switch refusal {
	case standing.OtherWorkspace:
		return apierr.New(apierr.Forbidden,
			"This credential is not for the workspace in X-Tenant-Id. Use a credential that was created in that "+
				"workspace.")
	case standing.NotMember:
		return apierr.New(apierr.Forbidden,
			"You are no longer a member of this workspace. Ask an administrator of the workspace to add you.")
	case standing.LLMOff:
		return apierr.New(apierr.Forbidden,
			"LLM integration is off in this workspace, so connectors have no access. An administrator of the "+
				"workspace can turn it on.")
	case standing.MemberLacks:
		return apierr.New(apierr.Forbidden,
			"You do not have the permission "+string(need)+" in this workspace. Ask an administrator of the workspace "+
				"to grant it.")
	case standing.CredentialLacks:
		return g.refuseMissing(ctx, held, held.granted(s), need)
	}
	return nil
}

// refuseMissing refuses a credential without a permission that its user holds, and says what would help. It sends the
// insufficient_scope challenge (RFC 6750, section 3.1) only if a new consent can grant the permission.
func (g *Gate) refuseMissing(ctx context.Context, held presented, granted perm.Set, needed perm.Permission) error {
	if held.Claims == nil {
		return apierr.New(apierr.Forbidden,
			"You have the permission "+string(needed)+" in this workspace, but this personal access token does not. "+
				"Create a token with this permission in Settings, Developers.")
	}
	askable, err := g.Standings.Askable(ctx, held.Query.GrantID, held.Query.GrantIn)
	if err != nil {
		return err
	}
	if !askable.Has(needed) {
		return apierr.New(apierr.Forbidden,
			"You have the permission "+string(needed)+" in this workspace, but this application cannot get it, so "+
				"connecting again does not help. An administrator of the workspace can register an application that "+
				"requires it, in Settings, Developers, or change the connector policy, in Settings, Assistants.")
	}
	// The scope also names what the token already has, since a client that requests only the missing permission would
	// lose the others, and the read permission that a write depends on.
	scope := append(granted[:len(granted):len(granted)], needed)
	if entry, _ := perm.Describe(needed); askable.Has(entry.Needs) {
		scope = append(scope, entry.Needs)
	}
	return challenged{
		apierr.New(apierr.Forbidden,
			"You have the permission "+string(needed)+" in this workspace, but this connection does not. Connect "+
				"again and allow it."),
		g.challenge("insufficient_scope", perm.NewSet(scope...)),
	}
}

// refuseModule is step 4. It never refuses on the MCP endpoint, where the tool's result reports the module.
func (g *Gate) refuseModule(refusal standing.Refusal) error {
	if words := module(refusal); words != nil && !g.Resource.forAssistants {
		return words
	}
	return nil
}

// module returns why a module cannot be used, or nil. Only the operator of the server can enable and provision a module
// (authserver admin modules set), so the 503 has no Retry-After (spec 7.2).
func module(refusal standing.Refusal) *apierr.Error {
	switch refusal {
	case standing.ModuleDisabled:
		return &apierr.Error{Kind: apierr.Forbidden, Code: "MODULE_NOT_ENABLED",
			Message: "This module is not enabled in this workspace. Ask the administrator who operates this " +
				"server to enable it: members of the workspace cannot."}
	case standing.ModuleUnavailable:
		return apierr.New(apierr.NotProvisioned,
			"This module is enabled but not set up in this workspace yet. Trying again does not help. Ask the "+
				"administrator who operates this server to set it up.")
	}
	return nil
}

// Messages that several refusals share. None reveals whether a credential or a workspace exists.
const (
	noCredential = "The request has no credential. Send the header Authorization: Bearer with a personal access " +
		"token or an access token."
	badCredential     = "The credential is not valid. It may be revoked, replaced or from another server."
	expiredCredential = "The credential has expired. Get a new one."
)

// challenged is a refusal with a WWW-Authenticate challenge (RFC 6750, section 3; RFC 9728, section 5.1).
type challenged struct {
	refusal   *apierr.Error
	challenge string
}

func (c challenged) Error() string { return c.refusal.Error() }
func (c challenged) Unwrap() error { return c.refusal }

// unauthenticated refuses a token that was presented.
func (g *Gate) unauthenticated(message string) error {
	return challenged{apierr.New(apierr.Unauthenticated, message), g.challenge("invalid_token", g.useful)}
}

func (g *Gate) challenge(code string, scope perm.Set) string {
	named := ""
	if code != "" {
		named = fmt.Sprintf(", error=%q", code)
	}
	return fmt.Sprintf(`Bearer realm="almoner"%s, resource_metadata=%q, scope=%q`, named, g.metadata, scope.Scope())
}

// Refuse writes err as JSON and logs it if it is a server error. It must be called once per request; no other code
// writes errors as JSON.
func (g *Gate) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	if c, ok := errors.AsType[challenged](err); ok {
		w.Header().Set("WWW-Authenticate", c.challenge)
	}
	answer := apierr.Of(err)
	g.LogServerError(r, answer)
	apierr.Write(w, apierr.Nested, answer)
}

// LogServerError logs the cause of a server error.
func (g *Gate) LogServerError(r *http.Request, answer *apierr.Error) {
	if status := answer.Status(); status >= 500 && answer.Cause != nil {
		g.Log.ErrorContext(r.Context(), "request failed", "status", status, "cause", answer.Cause)
	}
}

// readmit checks steps 1, 3 and 4 again.
func (g *Gate) readmit(ctx context.Context, held presented, workspaceID uuid.UUID, need perm.Permission) error {
	s, err := g.readStanding(ctx, held, workspaceID, need, Plan{})
	if err != nil {
		return err
	}
	refusal := g.decide(held, s, workspaceID, need)
	if err := g.access(ctx, held, s, need, refusal); err != nil {
		return err
	}
	return g.refuseModule(refusal)
}

// presented is a credential as parsed from the request. It is not trusted until checkStanding has checked its standing.
type presented struct{ usage.Presented }

// identify reads the credential of a request: the part of step 1 that needs no call to Postgres. It distinguishes the
// two kinds of credentials and refuses malformed ones. It records an authentic one, so that its requests count even if
// they are refused before it is looked up.
func (g *Gate) identify(r *http.Request) (presented, error) {
	token, err := rest.BearerToken(r.Header)
	switch {
	case errors.Is(err, rest.ErrNoToken): // a request without a token
		// The challenge names no error. Its scope is everything that a connector can use here, because some clients
		// never request more later.
		return presented{}, challenged{apierr.New(apierr.Unauthenticated, noCredential), g.challenge("", g.useful)}
	case err != nil:
		return presented{}, g.unauthenticated("Send one Authorization header with one bearer token.")
	}
	text := token.Reveal()
	if strings.HasPrefix(text, credential.PersonalAccessToken.Prefix) {
		if !credential.PersonalAccessToken.Matches(text) {
			return presented{}, g.unauthenticated(badCredential)
		}
		held := presented{usage.OfHash(credential.Hash(text))}
		held.Record(r.Context())
		return held, nil
	}
	claims, err := g.Keys.Verify(r.Context(), text)
	held := presented{usage.OfClaims(claims)}
	if err == nil || errors.Is(err, accesstoken.ErrExpired) {
		held.Record(r.Context())
	}
	switch {
	case errors.Is(err, accesstoken.ErrExpired):
		return presented{}, g.unauthenticated(expiredCredential)
	case errors.Is(err, accesstoken.ErrInvalid), errors.Is(err, accesstoken.ErrUnknownKey):
		return presented{}, g.unauthenticated(badCredential)
	case err != nil:
		return presented{}, err
	case claims.Audience != g.audience:
		return presented{}, g.unauthenticated("The access token is for another resource.")
	}
	web.RecordGrant(r.Context(), claims.GrantID)
	return held, nil
}

// checkStanding checks whether the credential is valid for any use. An access token whose claims disagree with its
// grant was not issued from that grant and is refused.
func (g *Gate) checkStanding(held presented, s standing.Standing) error {
	if held.Claims != nil && !s.Backs(*held.Claims) {
		return g.unauthenticated(badCredential)
	}
	switch s.State {
	case standing.Active:
		return nil
	case "expired":
		return g.unauthenticated(expiredCredential)
	}
	return g.unauthenticated(badCredential)
}

// granted returns the permissions of the credential. A token may hold fewer than its grant.
func (p presented) granted(s standing.Standing) perm.Set {
	if p.Claims == nil {
		return s.CredentialPermissions
	}
	return s.CredentialPermissions.Intersect(p.Claims.Scope)
}

// WorkspaceHeader names the workspace of a request (spec 5.1).
const WorkspaceHeader = "X-Tenant-Id"

// readWorkspace returns the workspace of the single X-Tenant-Id header. The error is an *apierr.Error.
func readWorkspace(h http.Header) (uuid.UUID, error) {
	values := h.Values(WorkspaceHeader)
	if len(values) == 1 {
		if workspaceID, err := web.ParseID(values[0]); err == nil {
			return workspaceID, nil
		}
	}
	problem := "X-Tenant-Id must be a UUID"
	switch {
	case len(values) == 0:
		problem = "X-Tenant-Id is missing"
	case len(values) > 1:
		problem = "X-Tenant-Id was sent more than once"
	}
	return uuid.Nil, apierr.New(apierr.Invalid,
		problem+": the tenant header is required. Send it once, with the workspace ID from Settings, Developers.")
}

// Bounds on the concurrent requests of one credential and one workspace in one process (contract, section 6).
const (
	MaxInFlight = inflight.MaxPerCredential
	MaxSearches = 2
	// MaxExports is the maximum number of concurrent exports of one credential.
	MaxExports = 2
	// maxWait bounds the wait for the reads of other credentials of the workspace.
	maxWait = 10 * time.Second
	// maxSearchWait bounds the wait for the searches of other credentials of the workspace.
	maxSearchWait = 2 * time.Second
	// maxReads is how many pages of one workspace's forms and submissions are read at once. Each read holds one of
	// the 11 Postgres connections of the process while up to 4 MB are transferred.
	maxReads = 3
)

// searchPolicy names the search limit in the RateLimit and RateLimit-Policy headers.
const searchPolicy = "searches-in-flight"

// key identifies the credential.
func (p presented) key() inflight.Credential { return inflight.CredentialOf(p.Query) }

// Bounds limit what one credential, and the searches of one workspace, use of the process, so that one workspace
// cannot starve the others. All gates of a process share one Bounds.
type Bounds struct {
	requests   *inflight.Credentials
	searches   *inflight.Requests[inflight.Credential]
	exports    *inflight.Requests[inflight.Credential]
	workspaces *inflight.Requests[uuid.UUID]        // searches, by workspace
	reads      *inflight.Requests[uuid.UUID]        // long pages, by workspace
	bytes      *inflight.Bytes[inflight.Credential] // response bytes, by credential
}

// NewBounds returns the bounds of a process. A workspace runs at most the given number of searches at once, however
// many credentials it has; further searches wait.
func NewBounds(searches int) *Bounds {
	return &Bounds{
		// Reads share statements. Writes, long pages and searches have their own bounds. So a single credential cannot
		// use up the connections.
		requests: inflight.NewCredentials(MaxInFlight),
		searches: inflight.New[inflight.Credential](inflight.Bounds{InFlight: MaxSearches, AtOnce: MaxSearches}),
		exports:  inflight.New[inflight.Credential](inflight.Bounds{InFlight: MaxExports, AtOnce: MaxExports}),
		workspaces: inflight.New[uuid.UUID](
			inflight.Bounds{InFlight: MaxInFlight, AtOnce: searches, Wait: maxSearchWait}),
		reads: inflight.New[uuid.UUID](inflight.Bounds{InFlight: math.MaxInt, AtOnce: maxReads, Wait: maxWait}),
		bytes: inflight.NewBytes[inflight.Credential](answerBytes(), answerBytes()/3),
	}
}

// answerBytes is how many response bytes the process may hold for slow readers: a fifth of the memory limit, or 64
// MiB if there is no limit.
func answerBytes() int {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return int(limit / 5)
	}
	return 64 << 20
}

type bytesKey struct{}

// ByteReserver returns the function by which an admitted request reserves bytes for its response. If it returns false,
// there is no room for more and the response must end early.
func ByteReserver(ctx context.Context) func(bytes int) bool {
	if hold, ok := ctx.Value(bytesKey{}).(*inflight.Hold[inflight.Credential]); ok {
		return hold.Take
	}
	return func(int) bool { return true }
}

// ReadInTurn runs read, which loads a long page from Postgres, once the workspace of the request has a free read
// slot. This prevents the credentials of one workspace from holding every connection. read must not wait for the
// client.
func (c Caller) ReadInTurn(ctx context.Context, read func() error) (err error) {
	turn, err := c.reads.Enter(ctx, c.WorkspaceID)
	if err != nil {
		return inflight.Refusal(err, "Too many lists of this workspace are being read. Wait until one finishes.")
	}
	defer func() { endTurn(turn, err) }()
	return read()
}

// enterSearch waits for a search slot of the credential and then of the workspace. turn is the request's own.
func (b *Bounds) enterSearch(
	h http.Header, r *http.Request, held presented, turn inflight.Turn, workspaceID uuid.UUID,
) (leave func(error), err error) {
	own, err := b.searches.Enter(r.Context(), held.key())
	web.SetRateLimits(h, turn.RateLimit(), web.RateLimit{
		Name:      searchPolicy,
		Quota:     MaxSearches,
		Unit:      web.UnitConcurrentRequests,
		Remaining: MaxSearches - own.Others - 1,
	})
	if err != nil {
		return nil, inflight.Refusal(err,
			"This credential has two searches in flight, which is the maximum. Wait until one finishes.")
	}
	shared, err := b.workspaces.Enter(r.Context(), workspaceID)
	if err != nil {
		own.Leave(false)
		return nil, inflight.Refusal(err, "Too many searches of this workspace are in flight. Wait until one finishes.")
	}
	return func(err error) {
		endTurn(shared, err)
		endTurn(own, err)
	}, nil
}

// endTurn ends a turn with the outcome of its request. A request that timed out waiting for others of its workspace
// is not counted as a failure of the stores.
func endTurn(turn inflight.Turn, err error) {
	refusal, ok := errors.AsType[*apierr.Error](err)
	turn.Leave(ok && refusal.Kind == apierr.Unavailable && !errors.Is(err, inflight.ErrWaited))
}
