package authorize

import (
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// An offer is what a member of a workspace can give a client.
type offer struct {
	in       workspace.Membership
	granted  perm.Set
	leftOut  perm.Set // requested, but the user does not hold them
	withheld perm.Set // held by the user, but the workspace's connector policy does not allow them
}

// eligible decides what the user can give the client in a workspace. If that is nothing, it records why, shows a page,
// and returns errAnswered. The page adds the reads that writes need; an approval adds nothing to its page.
func (h *Handler) eligible(v *visit, workspaceID uuid.UUID, requested perm.Set) (offer, error) {
	in, member, err := h.Members.Membership(v.r.Context(), v.user.User.ID, workspaceID)
	switch {
	case err != nil:
		return offer{}, err
	case !member:
		return offer{}, h.refuseStranger(v, workspaceID, requested)
	case in.Workspace.SecondFactor && !v.user.SecondFactor.Satisfies():
		h.recordStopped(v, workspaceID, &v.user.User.ID, connectionlog.Refused, noSecondFactor)
		frame := ui.Frame{Person: v.person()}
		h.Pages.SecondFactorNeeded(v.w, v.r, frame, in.Workspace.Name, v.user.SecondFactor.Has, v.request)
		return offer{}, errAnswered
	case v.approves:
		requested = requested.Intersect(v.client.Required)
	default:
		requested = consent.AddRequiredReads(v.client, requested, in)
	}
	granted, leftOut, err := consent.Evaluate(v.client, requested, in)
	if err != nil {
		h.recordStopped(v, workspaceID, &v.user.User.ID, connectionlog.Refused, stoppedWords(err))
		var missing perm.Set
		if lack, lacking := errors.AsType[*consent.MissingPermissionsError](err); lacking {
			missing = lack.Missing
		}
		return offer{}, h.refuseAsking(v, cannotGive(v, err, in.Workspace), in, lacking(missing, in.Permissions))
	}
	granted, withheld, err := consent.ApplyPolicy(v.client, granted, in.Workspace)
	if err != nil {
		return offer{}, h.refuseByPolicy(v, err, in)
	}
	return offer{in, granted, leftOut, withheld}, nil
}

// refuseStranger refuses a user who is not a member. Only a workspace that the registered client belongs to can be
// asked for access: the page of a workspace that the user chose must not tell whether it exists.
func (h *Handler) refuseStranger(v *visit, workspaceID uuid.UUID, requested perm.Set) error {
	if !v.approves {
		h.recordStopped(v, v.client.WorkspaceID, nil, connectionlog.Refused, noMember)
	}
	m := notMember(v)
	if v.client.Address != "" || workspaceID != v.client.WorkspaceID {
		return h.refuse(v, m)
	}
	stranger := workspace.Membership{Workspace: workspace.Workspace{ID: workspaceID, Name: "this workspace"}}
	return h.refuseAsking(v, m, stranger, lacking(requested, nil))
}

// refuseByPolicy refuses what the workspace's connector policy does not allow. err is an error of consent.ApplyPolicy,
// or grant.ErrPolicy.
func (h *Handler) refuseByPolicy(v *visit, err error, in workspace.Membership) error {
	h.recordStopped(v, in.Workspace.ID, &v.user.User.ID, connectionlog.Refused, stoppedWords(err))
	m := notAllowed(v, err, in)
	if in.Permissions.Has(perm.AccountAPIAccess) { // the member can change the policy
		return h.refuse(v, m)
	}
	return h.refuseAsking(v, m, in, membership.AccessRequest{Policy: true})
}

// refuseAsking shows a page with the button "Ask an administrator" for the access that q names.
func (h *Handler) refuseAsking(v *visit, m *ui.Message, in workspace.Membership, q membership.AccessRequest) error {
	ask, err := h.ask(v, in, q)
	if err != nil {
		return err
	}
	m.Asks = []ui.Ask{ask}
	return h.refuse(v, m)
}

// lacking returns the request for missing permissions, or for the LLM integration if there are none.
func lacking(missing, held perm.Set) membership.AccessRequest {
	return membership.AccessRequest{Permissions: missing.Without(held), LLMIntegration: len(missing) == 0}
}

// ask returns the button for the access that q names.
func (h *Handler) ask(v *visit, in workspace.Membership, q membership.AccessRequest) (ui.Ask, error) {
	q.SignInID, q.UserID, q.WorkspaceID = v.user.SignInID, v.user.User.ID, in.Workspace.ID
	q.Application, q.Back, q.Issued = nameOf(v.client), []byte(v.request), h.Now()
	button, err := h.Offers.Offer(v.r.Context(), q, in.Permissions)
	out := ui.Ask{
		Workspace: in.Workspace.Name,
		Ticket:    button.Ticket,
		None:      button.None,
		Policy:    q.Policy,
	}
	for _, m := range button.People {
		out.People = append(out.People, ui.Person{Name: m.Name, Email: m.Email})
	}
	return out, err
}

// mostAsks is the maximum number of buttons on a page.
const mostAsks = 5

// askToOpen returns a button for each workspace whose LLM integration is off, for the first few.
func (h *Handler) askToOpen(v *visit, closed []workspace.Membership) (asks []ui.Ask, err error) {
	for _, in := range closed[:min(len(closed), mostAsks)] {
		ask, err := h.ask(v, in, lacking(nil, in.Permissions))
		if err != nil {
			return nil, err
		}
		asks = append(asks, ask)
	}
	return asks, nil
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
	v *visit, workspaceID uuid.UUID, user *uuid.UUID, outcome connectionlog.Outcome, reason string,
) {
	if v.client.Kind != client.Connector {
		return
	}
	h.Attempts.Record(v.r.Context(), connectionlog.StoppedAttempt{
		WorkspaceID: workspaceID,
		ClientID:    v.client.ID,
		UserID:      user,
		Outcome:     outcome,
		Reason:      reason,
	})
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
	out := make([]string, len(set))
	for i, p := range set {
		out[i] = string(p)
		if entry, known := perm.Describe(p); known {
			out[i] = entry.Title
		}
	}
	return strings.Join(out, ", ")
}
