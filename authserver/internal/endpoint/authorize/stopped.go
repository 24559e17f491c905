package authorize

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/perm"
)

// StoppedAttempts note where a connector's way ended before there was a grant; it is walk.Noter.
type StoppedAttempts interface {
	Record(ctx context.Context, s connectionlog.StoppedAttempt)
}

// What the connection log says of a page that waits, and of one that was answered with no.
const (
	pageWaits = "The consent page was shown and is not answered yet."
	userSaid  = "The user did not approve the request."
	noMember  = "The user who was signed in is not a member of the workspace."
)

// recordStopped notes it in the workspace's connection log. Only connectors have one.
func (h *Handler) recordStopped(
	r *http.Request,
	c client.Client,
	workspaceID uuid.UUID,
	user *uuid.UUID,
	outcome connectionlog.Outcome,
	reason string,
) {
	if c.Kind == client.Connector {
		h.Attempts.Record(
			r.Context(),
			connectionlog.StoppedAttempt{
				WorkspaceID: workspaceID,
				ClientID:    c.ID,
				UserID:      user,
				Outcome:     outcome,
				Reason:      reason,
			},
		)
	}
}

// stoppedWords tell an error of consent.Weigh or consent.Limit to whoever reads the log.
func stoppedWords(err error) string {
	lack, lacking := errors.AsType[*consent.MissingPermissionsError](err)
	switch {
	case lacking:
		return "The user does not hold what it asks for: " + titles(lack.Missing) + "."
	case errors.Is(err, consent.ErrLLMOff):
		return "The workspace has switched its LLM integration off."
	case errors.Is(err, consent.ErrPlatformNotAllowed):
		return "The connector policy does not allow this platform."
	case errors.Is(err, consent.ErrNothingAllowed), errors.Is(err, grant.ErrPolicy):
		return "The connector policy allows none of the permissions that it asks for."
	}
	return err.Error()
}

func titles(set perm.Set) string {
	out := ""
	for i, p := range set {
		if i > 0 {
			out += ", "
		}
		if entry, known := perm.Describe(p); known {
			out += entry.Title
		} else {
			out += string(p)
		}
	}
	return out
}
