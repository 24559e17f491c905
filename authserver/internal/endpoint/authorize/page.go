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
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
)

// Page serves GET /oauth/authorize. It changes nothing but the connection log.
func (h *Handler) Page(w http.ResponseWriter, r *http.Request) {
	app, err := h.Requests.Identify(r.Context(), r.URL.RawQuery)
	if refused, ok := errors.AsType[*engine.PageError](err); ok {
		h.recordStopped(r, app.Client, app.Client.WorkspaceID, nil, connectionlog.Refused, refused.Message)
		h.Pages.Fault(w, r, badRequest(refused.Message))
		return
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	again := "/oauth/authorize?" + r.URL.RawQuery
	visitor, signedIn, err := h.Visitors.CurrentUser(r.Context())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if !signedIn {
		// Shown here and not at /login?return=…: a long request would outgrow an address that holds it escaped twice.
		h.Pages.Show(w, r, http.StatusOK, &ui.Login{
			Frame: ui.Frame{Title: "Sign in"}, Application: spoken(app.Client), Return: again,
		})
		return
	}
	ask, err := h.Requests.ParseAuthorization(r.Context(), app)
	if refused, ok := errors.AsType[*engine.RedirectError](err); ok {
		h.recordStopped(
			r,
			app.Client,
			app.Client.WorkspaceID,
			&visitor.User.ID,
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
	if ask.Client.Address != "" {
		h.offerWorkspaces(w, r, visitor, ask, again, "")
		return
	}
	h.offer(w, r, visitor, ask, ask.Client.WorkspaceID, again)
}

// offer shows the consent page, or why this user cannot consent.
func (h *Handler) offer(
	w http.ResponseWriter,
	r *http.Request,
	visitor session.CurrentUser,
	ask consent.Request,
	workspaceID uuid.UUID,
	again string,
) {
	place, member, err := h.Members.Membership(r.Context(), visitor.User.ID, workspaceID)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if !member {
		h.recordStopped(r, ask.Client, ask.Client.WorkspaceID, nil, connectionlog.Refused, noMember)
		h.Pages.Fault(w, r, notMember(visitor, ask.Client, again))
		return
	}
	granted, leftOut, err := consent.Evaluate(
		ask.Client,
		consent.AddRequiredReads(ask.Client, ask.Permissions, place),
		place,
	)
	if err != nil {
		h.recordStopped(r, ask.Client, place.Workspace.ID, &visitor.User.ID, connectionlog.Refused, stoppedWords(err))
		h.Pages.Fault(w, r, cannotGive(err, visitor, ask.Client, place.Workspace, again))
		return
	}
	granted, withheld, err := consent.ApplyPolicy(ask.Client, granted, place.Workspace)
	if err != nil {
		h.recordStopped(r, ask.Client, place.Workspace.ID, &visitor.User.ID, connectionlog.Refused, stoppedWords(err))
		h.Pages.Fault(w, r, notAllowed(err, visitor, ask.Client, place, again))
		return
	}
	ticket, err := h.Tickets.Seal(consent.Ticket{
		GrantID:     identity.New(),
		SignInID:    visitor.SignInID,
		UserID:      visitor.User.ID,
		ClientID:    ask.Client.ID,
		WorkspaceID: place.Workspace.ID,
		RedirectURI: ask.RedirectURI,
		State:       []byte(ask.State),
		Permissions: granted,
		Resource:    ask.Resource,
		Challenge:   ask.Challenge,
		Request:     []byte(again),
		Issued:      h.Now(),
	})
	if err != nil {
		h.fail(w, r, err)
		return
	}
	view := h.consentView(ask, place, granted, leftOut)
	view.Frame = ui.Frame{
		Title: ask.Client.Name + " asks for access", Person: person(visitor),
		FormTargets: []string{consent.Callback{URI: ask.RedirectURI}.FormTarget()},
	}
	view.Ticket, view.SwitchTo, view.Withheld = ticket, again, withheld
	h.recordStopped(r, ask.Client, place.Workspace.ID, &visitor.User.ID, connectionlog.Waiting, pageWaits)
	h.Pages.Show(w, r, http.StatusOK, view)
}

func (h *Handler) consentView(ask consent.Request, place workspace.Membership, granted, leftOut perm.Set) *ui.Consent {
	callback := consent.Callback{URI: ask.RedirectURI}
	life := consent.Life(ask.Client, place.Workspace)
	return &ui.Consent{
		Application:  ask.Client.Name,
		Domain:       ask.Client.Domain(),
		Workspace:    place.Workspace.Name,
		Organisation: place.Workspace.Organisation,
		Granted:      granted,
		LeftOut:      leftOut,
		Presets:      consent.ReadOnly(ask.Client.Kind, granted) != nil,
		Days:         int(life / (24 * time.Hour)),
		Until:        h.Now().Add(life),
		Destination:  callback.Host(),
		Loopback:     callback.Loopback(),
		Lookalike:    callback.Lookalike(),
	}
}

// spoken is the application's name, with the domain of one that nobody has registered here: the name is its own word
// alone.
func spoken(c client.Client) string {
	if domain := c.Domain(); domain != "" {
		return c.Name + " (" + domain + ")"
	}
	return c.Name
}

// ApplicationAt names the application that sent the user to a path of ours, or says "". Where that cannot be learned,
// signing in goes on without the name.
func (h *Handler) ApplicationAt(ctx context.Context, path string) string {
	query, asks := strings.CutPrefix(path, "/oauth/authorize?")
	if !asks {
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
