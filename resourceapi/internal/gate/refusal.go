package gate

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/perm"
)

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

// missing refuses a request without a token. The challenge names no error. Its scope is everything that a connector
// can use here, because some clients never request more later.
func (g *Gate) missing() error {
	return challenged{apierr.New(apierr.Unauthenticated, noCredential), g.challenge("", g.useful)}
}

// insufficient refuses a token without a permission that its user holds, if a new consent can grant it. The scope
// also names what the token already has, since a client that requests only the missing permission would lose the
// others, and the read permission that a write depends on.
func (g *Gate) insufficient(granted, askable perm.Set, needed perm.Permission) error {
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
		g.log.ErrorContext(r.Context(), "request failed", "status", status, "cause", answer.Cause)
	}
}
