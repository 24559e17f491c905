package authorize

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// Page serves GET /oauth/authorize. It writes nothing except to the connection log.
func (h *Handler) Page(w http.ResponseWriter, r *http.Request) {
	v := &visit{w: w, r: r, request: "/oauth/authorize?" + r.URL.RawQuery}
	h.finish(v, h.page(v))
}

func (h *Handler) page(v *visit) error {
	ctx := v.r.Context()
	app, err := h.Requests.Identify(ctx, v.r.URL.RawQuery)
	v.client = app.Client
	if refused, ok := errors.AsType[*engine.PageError](err); ok {
		h.recordStopped(v, app.Client.WorkspaceID, nil, connectionlog.Refused, refused.Message)
		m := messages.BadRequest
		m.Text = refused.Message
		return h.refuse(v, m)
	}
	if err != nil {
		return err
	}
	user, signedIn, err := h.Visitors.CurrentUser(ctx)
	if err != nil {
		return err
	}
	if !signedIn {
		// The sign-in page is shown here and not at /login?return=…, because a long request would exceed the URL length
		// when escaped twice.
		frame := ui.Frame{Title: "Sign in", Return: v.request}
		page := &ui.Login{Frame: frame, Application: nameOf(app.Client)}
		h.Pages.Show(v.w, v.r, http.StatusOK, page)
		return nil
	}
	v.user = user
	req, err := h.Requests.ParseAuthorization(ctx, app)
	if refused, ok := errors.AsType[*engine.RedirectError](err); ok {
		h.recordStopped(v, app.Client.WorkspaceID, &user.User.ID, connectionlog.Refused, refused.Description)
		return h.sendBack(v, app.RedirectURI,
			"error", refused.Code, "error_description", refused.Description, "state", refused.State)
	}
	if err != nil {
		return err
	}
	v.client, req.SignInID = req.Client, user.SignInID
	approval, err := h.decided(v, req.RequestIdentity)
	switch {
	case err != nil:
		return err
	case approval.Used():
		return h.refuseUsed(v, approval)
	case req.Client.Address != "":
		return h.offerWorkspaces(v, req, "")
	}
	return h.offer(v, req, approval, req.Client.WorkspaceID)
}

// offer shows the consent page, or why this user cannot consent.
func (h *Handler) offer(v *visit, req consent.Request, approval consent.Approval, workspaceID uuid.UUID) error {
	offered, err := h.eligible(v, workspaceID, req.Permissions)
	if err != nil {
		return err
	}
	next, free := approval.Next(workspaceID)
	if !free {
		return h.refuseUsed(v, approval)
	}
	ticket := h.ticketOf(v, req)
	ticket.GrantID, ticket.WorkspaceID, ticket.Permissions = next, workspaceID, offered.granted
	view := h.consentView(v, req, offered)
	if view.Ticket, err = h.Tickets.Seal(ticket); err != nil {
		return err
	}
	approved := approval.In(workspaceID)
	view.Approved = approved != nil
	if view.ReadOnly, err = h.choseReadOnly(v, offered, approved); err != nil {
		return err
	}
	if len(offered.leftOut) > 0 {
		if view.Ask, err = h.ask(v, offered.in, lacking(offered.leftOut, offered.in.Permissions)); err != nil {
			return err
		}
	}
	h.recordStopped(v, workspaceID, &v.user.User.ID, connectionlog.Waiting, pageWaits)
	h.Pages.Show(v.w, v.r, http.StatusOK, view)
	return nil
}

// choseReadOnly reports whether the user has approved the request with read-only access. If the user has not approved
// it, choseReadOnly reports whether the last connection of the client had read-only access and was revoked because a
// used code or token was presented.
func (h *Handler) choseReadOnly(v *visit, offered offer, approved *grant.Grant) (bool, error) {
	least := consent.ReadOnly(v.client.Kind, offered.granted)
	if least == nil {
		return false, nil
	}
	if approved != nil {
		return len(approved.Permissions.Without(least)) == 0, nil
	}
	former, err := h.Store.InterruptedGrant(v.r.Context(), v.user.User.ID, v.client.ID, offered.in.Workspace.ID)
	return len(former) > 0 && len(former.Without(least)) == 0, err
}

func (h *Handler) consentView(v *visit, req consent.Request, offered offer) *ui.Consent {
	callback, in := consent.Callback{URI: req.RedirectURI}, offered.in.Workspace
	life := consent.Life(req.Client, in)
	return &ui.Consent{
		Frame: ui.Frame{
			Title:  req.Client.Name + " asks for access",
			Person: v.person(),
			Return: v.request, // to sign in as another user
		},
		Application:  req.Client.Name,
		Domain:       req.Client.Domain(),
		Workspace:    in.Name,
		Organisation: in.Organisation,
		Granted:      offered.granted,
		LeftOut:      offered.leftOut,
		Withheld:     offered.withheld,
		Presets:      consent.ReadOnly(req.Client.Kind, offered.granted) != nil,
		Days:         int(life / (24 * time.Hour)),
		Until:        h.Now().Add(life),
		Destination:  callback.Host(),
		OwnDevice:    callback.OwnDevice(),
		Lookalike:    callback.Lookalike(),
	}
}

// nameOf returns the name of the application. If the client has a metadata document, the domain follows, because the
// document can claim any name.
func nameOf(c client.Client) string {
	if domain := c.Domain(); domain != "" {
		return c.Name + " (" + domain + ")"
	}
	return c.Name
}

// ApplicationAt returns the name of the application whose authorization request is at path, or "". Sign-in continues
// without the name if it cannot be read.
func (h *Handler) ApplicationAt(ctx context.Context, path string) string {
	query, found := strings.CutPrefix(path, "/oauth/authorize?")
	if !found {
		return ""
	}
	app, err := h.Requests.Identify(ctx, query)
	if err != nil {
		return ""
	}
	return nameOf(app.Client)
}

// An offer is what a member of a workspace can give a client.
type offer struct {
	in       workspace.Membership
	granted  perm.Set
	leftOut  perm.Set // requested, but the user does not hold them
	withheld perm.Set // held by the user, but the workspace's connector policy does not allow them
}

// eligible decides what the user can give the client in a workspace. If that is nothing, it records why, shows a page,
// and returns errAnswered. The consent page adds the reads that writes need; an approval grants nothing that the page
// did not show.
func (h *Handler) eligible(v *visit, workspaceID uuid.UUID, requested perm.Set) (offer, error) {
	in, member, err := h.Store.Membership(v.r.Context(), v.user.User.ID, workspaceID)
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
		m, missing := forbidden(v, messages.ConnectorsOff, in.Workspace.Name), perm.Set(nil)
		if lack, some := errors.AsType[*consent.MissingPermissionsError](err); some {
			m, missing = forbidden(v, messages.PermissionsMissing, in.Workspace.Name), lack.Missing
			m.List = missing
		}
		return offer{}, h.refuseAsking(v, m, in, lacking(missing, in.Permissions))
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
	if v.client.Address != "" {
		return h.refuse(v, forbidden(v, messages.NotInChosen, ""))
	}
	m := forbidden(v, messages.NotMember, "")
	if workspaceID != v.client.WorkspaceID {
		return h.refuse(v, m)
	}
	stranger := workspace.Membership{Workspace: workspace.Workspace{ID: workspaceID, Name: "this workspace"}}
	return h.refuseAsking(v, m, stranger, lacking(requested, nil))
}

// refuseByPolicy refuses what the workspace's connector policy does not allow, and says who can change it. err is an
// error of consent.ApplyPolicy, or grant.ErrPolicy.
func (h *Handler) refuseByPolicy(v *visit, err error, in workspace.Membership) error {
	h.recordStopped(v, in.Workspace.ID, &v.user.User.ID, connectionlog.Refused, stoppedWords(err))
	m := forbidden(v, messages.NotAllowed, in.Workspace.Name)
	if errors.Is(err, consent.ErrPlatformNotAllowed) {
		m.Text = platformWords(v.client) + " Nothing was approved."
	}
	if in.Permissions.Has(perm.AccountAPIAccess) {
		m.Next = "You can change the rules yourself. Then connect " + v.client.Name + " again."
		rules := "/settings/connectors?tenant=" + in.Workspace.ID.String()
		m.Links = []ui.Link{{Href: rules, Text: "Open the assistant rules"}}
		return h.refuse(v, m)
	}
	return h.refuseAsking(v, m, in, membership.AccessRequest{Policy: true})
}

// refuseAsking shows a page with the button "Ask an administrator" for the access that q names.
func (h *Handler) refuseAsking(v *visit, m ui.Message, in workspace.Membership, q membership.AccessRequest) error {
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
