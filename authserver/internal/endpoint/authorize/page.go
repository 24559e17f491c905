package authorize

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/perm"
)

// Page serves GET /oauth/authorize. It writes nothing except to the connection log.
func (h *Handler) Page(w http.ResponseWriter, r *http.Request) {
	app, err := h.Requests.Identify(r.Context(), r.URL.RawQuery)
	if refused, ok := errors.AsType[*engine.PageError](err); ok {
		h.recordStopped(r, app.Client, app.Client.WorkspaceID, nil, connectionlog.Refused, refused.Message)
		h.Pages.ShowError(w, r, badRequest(refused.Message))
		return
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	returnPath := "/oauth/authorize?" + r.URL.RawQuery
	user, signedIn, err := h.Visitors.CurrentUser(r.Context())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if !signedIn {
		// The sign-in page is shown here and not at /login?return=…, because a long request would exceed the URL length
		// when escaped twice.
		h.Pages.Show(w, r, http.StatusOK, &ui.Login{
			Frame: ui.Frame{Title: "Sign in"}, Application: spoken(app.Client), Return: returnPath,
		})
		return
	}
	req, err := h.Requests.ParseAuthorization(r.Context(), app)
	if refused, ok := errors.AsType[*engine.RedirectError](err); ok {
		h.recordStopped(
			r,
			app.Client,
			app.Client.WorkspaceID,
			&user.User.ID,
			connectionlog.Refused,
			refused.Description,
		)
		sendBack(w, consent.Callback{URI: app.RedirectURI}.With("error", refused.Code,
			"error_description", refused.Description, "state", refused.State, "iss", h.Issuer))
		return
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	approval, err := h.decided(r.Context(), user, req.Identity(user.SignInID), req.Client)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if approval.Used() {
		h.Pages.ShowError(w, r, usedAlready())
		return
	}
	if req.Client.Address != "" {
		h.offerWorkspaces(w, r, user, req, returnPath, "")
		return
	}
	h.offer(w, r, user, req, approval, req.Client.WorkspaceID, returnPath)
}

// offer shows the consent page, or why this user cannot consent.
func (h *Handler) offer(
	w http.ResponseWriter,
	r *http.Request,
	user session.CurrentUser,
	req consent.Request,
	approval consent.Approval,
	workspaceID uuid.UUID,
	returnPath string,
) {
	membership, member, err := h.Members.Membership(r.Context(), user.User.ID, workspaceID)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if !member {
		h.recordStopped(r, req.Client, req.Client.WorkspaceID, nil, connectionlog.Refused, noMember)
		m, err := asker{h, r, user, req.Client, returnPath}.
			askForMembership(notMember(user, req.Client, returnPath), workspaceID, req.Permissions)
		h.showAsking(w, r, m, err)
		return
	}
	if membership.Workspace.SecondFactor && !user.SecondFactor.Satisfies() {
		h.recordStopped(r, req.Client, membership.Workspace.ID, &user.User.ID, connectionlog.Refused, noSecondFactor)
		h.needSecondFactor(w, r, user, membership.Workspace, returnPath)
		return
	}
	granted, leftOut, err := consent.Evaluate(
		req.Client,
		consent.AddRequiredReads(req.Client, req.Permissions, membership),
		membership,
	)
	if err != nil {
		h.recordStopped(r, req.Client, membership.Workspace.ID, &user.User.ID, connectionlog.Refused, stoppedWords(err))
		m, err := asker{h, r, user, req.Client, returnPath}.
			askFor(cannotGive(err, user, req.Client, membership.Workspace, returnPath), err, membership)
		h.showAsking(w, r, m, err)
		return
	}
	granted, withheld, err := consent.ApplyPolicy(req.Client, granted, membership.Workspace)
	if err != nil {
		h.recordStopped(r, req.Client, membership.Workspace.ID, &user.User.ID, connectionlog.Refused, stoppedWords(err))
		m, err := asker{h, r, user, req.Client, returnPath}.
			askForPolicy(notAllowed(err, user, req.Client, membership, returnPath), membership)
		h.showAsking(w, r, m, err)
		return
	}
	next, free := approval.Next(workspaceID)
	if !free {
		h.Pages.ShowError(w, r, usedAlready())
		return
	}
	ticket, err := h.Tickets.Seal(consent.Ticket{
		GrantID:     next,
		SignInID:    user.SignInID,
		UserID:      user.User.ID,
		ClientID:    req.Client.ID,
		WorkspaceID: membership.Workspace.ID,
		RedirectURI: req.RedirectURI,
		State:       []byte(req.State),
		Permissions: granted,
		Resource:    req.Resource,
		Challenge:   req.Challenge,
		Request:     []byte(returnPath),
		Issued:      h.Now(),
	})
	if err != nil {
		h.fail(w, r, err)
		return
	}
	view := h.consentView(req, membership, granted, leftOut)
	earlier := approval.In(workspaceID)
	view.ReadOnly, err = h.choseReadOnly(r.Context(), user.User.ID, req.Client, membership, granted, earlier)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	view.Frame = ui.Frame{Title: req.Client.Name + " asks for access", Person: person(user)}
	view.Ticket, view.SwitchTo, view.Withheld = ticket, returnPath, withheld
	if len(leftOut) > 0 {
		by := asker{h, r, user, req.Client, returnPath}
		if view.Ask, err = by.ask(membership.Workspace, leftOut, membership.Permissions); err != nil {
			h.fail(w, r, err)
			return
		}
	}
	h.recordStopped(r, req.Client, membership.Workspace.ID, &user.User.ID, connectionlog.Waiting, pageWaits)
	h.Pages.Show(w, r, http.StatusOK, view)
}

// choseReadOnly reports whether the user has approved the request with read-only access. If the user has not approved
// it, choseReadOnly reports whether the last connection of the client had read-only access and was revoked because a
// used code or token was presented.
func (h *Handler) choseReadOnly(
	ctx context.Context,
	user uuid.UUID,
	c client.Client,
	membership workspace.Membership,
	granted perm.Set,
	approved *grant.Grant,
) (bool, error) {
	least := consent.ReadOnly(c.Kind, granted)
	if least == nil {
		return false, nil
	}
	if approved != nil {
		return len(approved.Permissions.Without(least)) == 0, nil
	}
	former, err := h.Members.InterruptedGrant(ctx, user, c.ID, membership.Workspace.ID)
	return len(former) > 0 && len(former.Without(least)) == 0, err
}

func (h *Handler) consentView(
	req consent.Request,
	membership workspace.Membership,
	granted, leftOut perm.Set,
) *ui.Consent {
	callback := consent.Callback{URI: req.RedirectURI}
	life := consent.Life(req.Client, membership.Workspace)
	return &ui.Consent{
		Application:  req.Client.Name,
		Domain:       req.Client.Domain(),
		Workspace:    membership.Workspace.Name,
		Organisation: membership.Workspace.Organisation,
		Granted:      granted,
		LeftOut:      leftOut,
		Presets:      consent.ReadOnly(req.Client.Kind, granted) != nil,
		Days:         int(life / (24 * time.Hour)),
		Until:        h.Now().Add(life),
		Destination:  callback.Host(),
		OwnDevice:    callback.OwnDevice(),
		Lookalike:    callback.Lookalike(),
	}
}

// spoken returns the name of the application. If the client has a metadata document, the domain follows, because the
// document can claim any name.
func spoken(c client.Client) string {
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
	return spoken(app.Client)
}

func person(v session.CurrentUser) *ui.Person {
	return &ui.Person{Name: v.User.Name, Email: v.User.Email}
}
