package gate

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/perm"
)

// Words that several refusals share. None says whether a credential or a workspace exists.
const (
	noCredential  = "Send a credential: Authorization: Bearer, then a personal access token or an access token."
	badCredential = "The credential is not valid. It may have been revoked or replaced, or belong to another " +
		"server."
	expiredCredential = "The credential has expired. Get a new one."
)

// challenged is a refusal that tells an OAuth client what to do about it (RFC 6750, section 3; RFC 9728, section 5.1).
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

// missing refuses a request without a token: the challenge names no error, as there was nothing wrong yet. Its scope is
// all that is useful here, because some clients never ask for more later.
func (g *Gate) missing() error {
	return challenged{apierr.New(apierr.Unauthenticated, noCredential), g.challenge("", g.useful)}
}

// insufficient refuses a token that lacks a permission which its user holds, so that asking the user again helps. The
// scope names what the token has as well, as a client that asks for the missing one alone would lose the others, and
// the read that a write is useless without.
func (g *Gate) insufficient(granted, askable perm.Set, needed perm.Permission) error {
	scope := append(granted[:len(granted):len(granted)], needed)
	if entry, _ := perm.Describe(needed); askable.Has(entry.Needs) {
		scope = append(scope, entry.Needs)
	}
	return challenged{
		apierr.New(
			apierr.Forbidden,
			"You hold "+string(
				needed,
			)+" in this workspace, but this connection was made without it. Connect again, and allow it.",
		),
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

// Refuse answers with err, once and for all: it is the one place that writes errors as JSON, and it logs those that are
// ours.
func (g *Gate) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	if c, ok := errors.AsType[challenged](err); ok {
		w.Header().Set("WWW-Authenticate", c.challenge)
	}
	answer := apierr.Of(err)
	g.Note(r, answer)
	apierr.Write(w, apierr.Nested, answer)
}

// Note logs the cause of an error that is ours.
func (g *Gate) Note(r *http.Request, answer *apierr.Error) {
	if status := answer.Status(); status >= 500 && answer.Cause != nil {
		g.log.ErrorContext(r.Context(), "request failed", "status", status, "cause", answer.Cause)
	}
}
