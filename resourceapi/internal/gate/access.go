package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// access is step 3: it checks whether the credential may do this in the workspace now. A workspace that does not
// exist and one that the caller does not belong to get the same response.
func (g *Gate) access(
	ctx context.Context, held presented, s standing.Standing, workspaceID uuid.UUID, need perm.Permission,
) error {
	granted := held.granted(s)
	switch {
	case s.CredentialWorkspace != workspaceID:
		return apierr.New(apierr.Forbidden,
			"This credential is not for the workspace in X-Tenant-Id. Use a credential that was created in that "+
				"workspace.")
	case !s.Member:
		return apierr.New(apierr.Forbidden,
			"You are no longer a member of this workspace. Ask an administrator of the workspace to add you.")
	case s.ConnectorsOff() || (g.Resource.forAssistants && !s.LLMIntegration):
		return apierr.New(apierr.Forbidden,
			"LLM integration is off in this workspace, so connectors have no access. An administrator of the "+
				"workspace can turn it on.")
	case need == "":
		return nil
	case !s.MemberPermissions.Has(need):
		return apierr.New(apierr.Forbidden,
			"You do not have the permission "+string(need)+" in this workspace. Ask an administrator of the workspace "+
				"to grant it.")
	case !granted.Has(need):
		return g.refuseMissing(ctx, held, granted, need)
	}
	return nil
}

// refuseMissing refuses a credential without a permission that its user holds, and says what would help. It sends the
// insufficient_scope challenge (RFC 6750, section 3.1) only if a new consent can grant the permission.
func (g *Gate) refuseMissing(ctx context.Context, held presented, granted perm.Set, needed perm.Permission) error {
	if held.claims == nil {
		return apierr.New(apierr.Forbidden,
			"You have the permission "+string(needed)+" in this workspace, but this personal access token does not. "+
				"Create a token with this permission in Settings, Developers.")
	}
	askable, err := g.Standings.Askable(ctx, held.question.GrantID, held.question.GrantIn)
	if err != nil {
		return err
	}
	if !askable.Has(needed) {
		return apierr.New(apierr.Forbidden,
			"You have the permission "+string(needed)+" in this workspace, but this application cannot get it, so "+
				"connecting again does not help. An administrator of the workspace can register an application that "+
				"requires it, in Settings, Developers, or change the connector policy, in Settings, Connectors.")
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

// refuseModule is step 4. It never refuses on the MCP endpoint, where the tool's result reports the module, nor a route
// that needs no permission of a module.
func (g *Gate) refuseModule(s standing.Standing, need perm.Permission) error {
	if refusal := module(s); refusal != nil && !g.Resource.forAssistants && need.OfModule() {
		return refusal
	}
	return nil
}

// module returns why a module cannot be used, or nil. Only the operator of the server can enable and provision a module
// (authserver admin modules set), so the 503 has no Retry-After (spec 7.2).
func module(s standing.Standing) *apierr.Error {
	switch {
	case !s.ModuleEnabled:
		return &apierr.Error{Kind: apierr.Forbidden, Code: "MODULE_NOT_ENABLED",
			Message: "This module is not enabled in this workspace. Ask the administrator who operates this " +
				"server to enable it: members of the workspace cannot."}
	case !s.ModuleProvisioned:
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
	if err := g.access(ctx, held, s, workspaceID, need); err != nil {
		return err
	}
	return g.refuseModule(s, need)
}
