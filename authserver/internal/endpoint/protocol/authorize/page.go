package authorize

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
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
		return h.refuse(v, badRequest(refused.Message))
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
		page := &ui.Login{Frame: ui.Frame{Title: "Sign in"}, Application: nameOf(app.Client), Return: v.request}
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
	v.client = req.Client
	approval, err := h.decided(v, req.Identity(user.SignInID))
	switch {
	case err != nil:
		return err
	case approval.Used():
		return h.refuse(v, usedAlready())
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
		return h.refuse(v, usedAlready())
	}
	ticket := consent.Ticket{Choice: h.choiceOf(v, req), GrantID: next, WorkspaceID: workspaceID}
	ticket.Permissions = offered.granted
	view := h.consentView(v, req, offered)
	if view.Ticket, err = h.Tickets.Seal(ticket); err != nil {
		return err
	}
	if view.ReadOnly, err = h.choseReadOnly(v, offered, approval.In(workspaceID)); err != nil {
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
	former, err := h.Members.InterruptedGrant(v.r.Context(), v.user.User.ID, v.client.ID, offered.in.Workspace.ID)
	return len(former) > 0 && len(former.Without(least)) == 0, err
}

func (h *Handler) consentView(v *visit, req consent.Request, offered offer) *ui.Consent {
	callback, in := consent.Callback{URI: req.RedirectURI}, offered.in.Workspace
	life := consent.Life(req.Client, in)
	return &ui.Consent{
		Frame:        ui.Frame{Title: req.Client.Name + " asks for access", Person: v.person()},
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
		SwitchTo:     v.request,
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
