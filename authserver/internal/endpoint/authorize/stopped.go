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

// StoppedAttempts records attempts of connectors that end before there is a grant; connectionlog.Recorder implements
// it.
type StoppedAttempts interface {
	Record(ctx context.Context, s connectionlog.StoppedAttempt)
}

// These reasons appear in the connection log.
const (
	pageWaits = "The consent page was shown. The user has not answered yet."
	userSaid  = "The user did not approve the request."
	noMember  = "The signed-in user is not a member of the workspace."

	noSecondFactor = "The workspace requires a second factor, and the user did not sign in with one."
)

// recordStopped records the attempt in the workspace's connection log. Only connectors have one.
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

// stoppedWords returns the connection log's text for an error of consent.Evaluate or consent.ApplyPolicy.
func stoppedWords(err error) string {
	lack, lacking := errors.AsType[*consent.MissingPermissionsError](err)
	switch {
	case lacking:
		return "The user does not have the requested permissions: " + titles(lack.Missing) + "."
	case errors.Is(err, consent.ErrLLMOff):
		return "The workspace has switched its LLM integration off."
	case errors.Is(err, consent.ErrPlatformNotAllowed):
		return "The connector policy does not allow this platform."
	case errors.Is(err, consent.ErrNothingAllowed), errors.Is(err, grant.ErrPolicy):
		return "The connector policy allows none of the requested permissions."
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
