package signin

import (
	"cmp"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Answers to invitations are limited by token and network (session.Attempts.Answered), so that a stranger cannot lock
// out the invited person. The link is a secret. If the address has an account, the link works only for its signed-in
// user. The token is only in this server's own URLs and forms: the pages send no Referer to other sites, and logs
// contain no query strings.

// An invitationPage is the page of an open invitation.
type invitationPage struct {
	ui.Frame
	Workspace    string
	Organisation string
	Inviter      string
	Email        string
	Permissions  perm.Set
	HasAccount   bool   // a user has the address; false if the link was not mailed
	Mailed       bool   // the link was mailed
	Token        string // in the forms
	Key          string // of a signed-in user's form: binds it to the sign-in
	Passkeys     bool   // the deployment offers passkeys
	SignIn       string // local path of the sign-in that leads back here
	Name         string // as typed
	NameNote     string // the error of this field
	PasswordNote string // the error of this field
}

// tellsAccount reports whether a user has the address, and the page may say so. If the link was not mailed, the inviter
// has it, who must not learn this.
func (v *visit) tellsAccount() bool { return v.offer.HasAccount && v.offer.Mailed }

// invitationPath returns the local path of the page.
func (v *visit) invitationPath() string { return "/invitation?token=" + url.QueryEscape(v.token) }

// readInvitation reads the invitation of the token in the form and the user at the browser.
func (h *Handler) readInvitation(v *visit) (err error) {
	v.token = v.form.Get("token")
	if v.current, v.signedIn, err = h.Sessions.CurrentUser(v.r.Context()); err == nil {
		v.offer, err = h.Members.Offer(v.r.Context(), credential.Secret(v.token))
	}
	return err
}

// showInvitation serves GET /invitation (token): who invites to what.
func (h *Handler) showInvitation(v *visit) error {
	if err := h.readInvitation(v); err != nil {
		return h.explain(v, err)
	}
	return h.showInvited(v, http.StatusOK, "")
}

// showInvited shows the invitation, with a problem if there is one.
func (h *Handler) showInvited(v *visit, status int, problem string) error {
	return h.fillIn(v, status, &invitationPage{Frame: ui.Frame{Problem: problem}})
}

// refuseAccount shows the invitation with the form for a new account as it was typed, except the password.
func (h *Handler) refuseAccount(v *visit, status int, problem, nameNote, passwordNote string) error {
	return h.fillIn(v, status, &invitationPage{
		Frame:        ui.Frame{Problem: problem},
		Name:         v.form.Get("name"),
		NameNote:     nameNote,
		PasswordNote: passwordNote,
	})
}

// fillIn adds the invitation to the page and shows it, or shows that the invitation is for another user.
func (h *Handler) fillIn(v *visit, status int, page *invitationPage) error {
	page.Title, page.Template = "Invitation to "+v.offer.Workspace, "invitation"
	page.Workspace, page.Organisation = v.offer.Workspace, v.offer.Organisation
	page.Inviter, page.Email, page.Permissions = v.offer.Inviter, v.offer.Email, v.offer.Permissions
	page.HasAccount, page.Mailed = v.tellsAccount(), v.offer.Mailed
	page.Token, page.SignIn, page.Passkeys = v.token, signInPath(v.invitationPath()), h.RelyingParty != nil
	page.Script, page.AsksPasskey = true, page.Passkeys && !v.signedIn && !page.HasAccount
	if v.signedIn {
		page.Person, page.Key = person(v.current.User), h.invitations.Seal([]byte(keyOf(v)))
		if spelling.Key(v.current.User.Email) != spelling.Key(v.offer.Email) {
			m := h.message(v, "invitation_for_other_account")
			m.Person, m.Switch = page.Person, v.invitationPath()
			return h.showMessage(v, m)
		}
	}
	return h.show(v, status, page)
}

// keyOf binds a form to the sign-in and the invitation that it was shown for.
func keyOf(v *visit) string {
	return v.current.SignInID.String() + " " + hex.EncodeToString(credential.Hash(v.token))
}

func (h *Handler) opensKey(v *visit) bool {
	content, err := h.invitations.Open(v.form.Get("key"))
	return err == nil && string(content) == keyOf(v)
}

// invitationForm serves a form with the token of an open invitation.
func (h *Handler) invitationForm(serve func(*visit) error) http.Handler {
	return h.form(invitation, func(v *visit) error {
		if err := h.readInvitation(v); err != nil {
			return h.explain(v, err)
		}
		if v.limited(h.Attempts.Answered(v.r.Context(), credential.Secret(v.token), h.address(v))) {
			return h.refuseAccount(v, http.StatusTooManyRequests, "There were too many attempts to answer this "+
				"invitation. Nothing was changed. Please try again in a few minutes.", "", "")
		}
		return h.explain(v, serve(v))
	})
}

// answer serves POST /invitation (token, key, decision: accept or decline).
func (h *Handler) answer(v *visit) error {
	decision := v.form.Get("decision")
	switch {
	case decision != "accept" && decision != "decline":
		return h.showInvited(v, http.StatusBadRequest, "Accept or decline the invitation.")
	case v.signedIn && !h.opensKey(v):
		return h.showInvited(v, http.StatusForbidden,
			"This page was opened in another session. Nothing was changed. Please answer again.")
	case decision == "decline":
		return h.decline(v)
	case !v.signedIn:
		return v.redirect(signInPath(v.invitationPath()) + "&" + ui.Unsent + "=1")
	}
	event := v.current.Event(v.r.Context(), audit.MemberAdded, "")
	if err := h.Members.Accept(v.r.Context(), v.offer, v.current.User.ID, event); err != nil {
		return err
	}
	return h.welcome(v)
}

func (h *Handler) decline(v *visit) error {
	event := audit.Event{Actor: "anonymous", RequestID: web.RequestID(v.r.Context())}
	var user *uuid.UUID
	if v.signedIn {
		event = v.current.Event(v.r.Context(), audit.InvitationDeclined, "")
		user = &v.current.User.ID
	}
	if err := h.Members.Decline(v.r.Context(), v.offer, user, event); err != nil {
		return err
	}
	return h.tell(v, "invitation_declined")
}

func (h *Handler) welcome(v *visit) error {
	return h.done(v, welcomePath(v.offer.WorkspaceID), "You are now a member of "+v.offer.Workspace+".")
}

// welcomePath returns the local path of the page that says what a member of a workspace can do.
func welcomePath(in uuid.UUID) string { return "/settings/welcome?tenant=" + in.String() }

// endedInvitations are the messages about invitations that have ended, by outcome.
var endedInvitations = map[string]string{
	"accepted":  "invitation_accepted",
	"declined":  "invitation_declined_before",
	"withdrawn": "invitation_withdrawn",
	"replaced":  "invitation_replaced",
	"expired":   "invitation_expired",
}

// showUsed leads a member to the workspace of an invitation that has ended, and tells others what happened to it and
// whom to ask.
func (h *Handler) showUsed(v *visit) error {
	ended, err := h.Members.Ended(v.r.Context(), credential.Secret(v.token), v.current.User.ID)
	signIn := ui.Link{Href: signInPath(v.invitationPath()), Text: "Sign in"}
	var m *ui.Message
	switch {
	case errors.Is(err, membership.ErrNoInvitation):
		if v.limited(h.Attempts.UnknownLink(v.r.Context(), h.address(v))) {
			return h.tell(v, "invitation_links_limited")
		}
		m = h.message(v, "invitation_invalid")
	case err != nil:
		return err
	case ended.Member:
		return h.done(v, welcomePath(ended.WorkspaceID), "You are already a member of "+ended.Workspace+".")
	default:
		v.offer.Workspace, v.offer.Inviter = ended.Workspace, cmp.Or(ended.Inviter, "an administrator there")
		m = h.message(v, endedInvitations[ended.Outcome])
	}
	if v.signedIn {
		m.Person, m.Switch = person(v.current.User), v.invitationPath()
		m.Links = []ui.Link{{Href: home, Text: "Go to your settings"}}
	} else {
		m.Links = []ui.Link{signIn}
	}
	return h.showMessage(v, m)
}

// explain shows why an invitation was not answered. It returns other errors.
func (h *Handler) explain(v *visit, err error) error {
	switch {
	case errors.Is(err, membership.ErrNoInvitation):
		return h.showUsed(v)
	case errors.Is(err, membership.ErrOtherAddress):
		return h.showInvited(v, http.StatusForbidden, "")
	case errors.Is(err, membership.ErrUnproven):
		text := "You cannot join another workspace before that. Nothing was changed."
		return h.showMessage(v, ui.Unproven(text, h.Members.Mailed()))
	case errors.Is(err, membership.ErrInviter):
		return h.tell(v, "invitation_by_former_inviter")
	case errors.Is(err, membership.ErrMember):
		return h.tell(v, "invitation_of_member")
	case h.isRefusal(v, err), errors.Is(err, membership.ErrPasskeyExists):
		return h.refuseAccount(v, http.StatusBadRequest, "The passkey was not accepted, and the account was not "+
			"created. Please try again.", "", "")
	case errors.Is(err, errSignedIn):
		return h.showInvited(v, http.StatusConflict, "You are signed in already.")
	case errors.Is(err, membership.ErrAccountExists):
		v.offer.HasAccount = true
		if !v.offer.Mailed {
			return h.showInvited(v, http.StatusConflict,
				"The account was not created. If you have one already, sign in to answer the invitation.")
		}
		return h.showInvited(v, http.StatusConflict,
			"There is an account with this address. Sign in to answer the invitation.")
	case errors.Is(err, audit.ErrNotAuthorized):
		v.signedIn = false
		return h.showInvited(v, http.StatusForbidden, "You were signed out. Nothing was changed.")
	}
	return err
}

// errSignedIn means that a new account was requested by a user who is signed in.
var errSignedIn = errors.New("the user is signed in already")

const notCreated = "The account was not created."

// newName returns the name of the new account in the form, or an error message for its field. Its error says why there
// can be no new account.
func newName(v *visit) (name, note string, err error) {
	switch {
	case v.signedIn:
		return "", "", errSignedIn
	case v.tellsAccount():
		return "", "", membership.ErrAccountExists
	}
	name = strings.TrimSpace(v.form.Get("name"))
	return name, displayname.Check(name, displayname.MaxLength), nil
}

// createAccount serves POST /invitation/account (token, name, password): it creates an account with the invitation's
// address, accepts and signs in.
func (h *Handler) createAccount(v *visit) error {
	name, nameNote, err := newName(v)
	if err != nil {
		return err
	}
	chosen := credential.Secret(v.form.Get("password"))
	if note := password.CheckForm(chosen); nameNote != "" || note != "" {
		return h.refuseAccount(v, http.StatusBadRequest, notCreated, nameNote, note)
	}
	ctx := v.r.Context()
	caller := session.Caller{Email: v.offer.Email, Address: h.address(v)}
	hash, note, err := password.Choose(ctx, h.Passwords, caller, chosen, name, v.offer.Email)
	if problem := notChecked(v, session.Result{}, err); problem != "" {
		return h.refuseAccount(v, http.StatusTooManyRequests, problem, "", "")
	}
	if err != nil {
		return err
	}
	if note != "" {
		return h.refuseAccount(v, http.StatusBadRequest, notCreated, "", note)
	}
	id, err := h.Members.AcceptAsNewUser(ctx, v.offer, name, hash, web.RequestID(ctx))
	if err != nil {
		return err
	}
	return h.arrive(v, id, name, session.Proof{Method: session.Password, PasswordHash: hash})
}

// arrive signs the new user in.
func (h *Handler) arrive(v *visit, id uuid.UUID, name string, proof session.Proof) error {
	user := workspace.User{ID: id, Email: v.offer.Email, Name: name}
	if err := h.begin(v, user, proof); err != nil {
		return err
	}
	return h.welcome(v)
}

// A registration is stored with a challenge. The response is valid only for this invitation.
type registration struct {
	User       uuid.UUID     `json:"user"`
	Invitation uuid.UUID     `json:"invitation"`
	State      passkey.State `json:"state"`
}

// newAccountOptions serves POST /invitation/passkey/options (token, name): the challenge for the page's script.
func (h *Handler) newAccountOptions(v *visit) error {
	var ok bool
	if v.form, ok = h.Pages.ReadForm(v.w, v.r); !ok {
		return nil
	}
	switch err := h.readInvitation(v); {
	case errors.Is(err, membership.ErrNoInvitation):
		return v.refuse(http.StatusNotFound, "This invitation is not valid.")
	case err != nil:
		return err
	}
	name, note, err := newName(v)
	switch {
	case err != nil:
		return v.refuse(http.StatusConflict, "There is an account with this address. Open the page again.")
	case note != "":
		return v.refuse(http.StatusBadRequest, note)
	}
	user := workspace.User{ID: uuid.Must(uuid.NewV7()), Email: v.offer.Email, Name: name}
	challenge, err := h.RelyingParty.BeginRegistration(user, nil)
	if err != nil {
		return err
	}
	return h.sendChallenge(v, session.NewAccount, h.Sessions.BindToBrowser(v.w, v.r), challenge, registration{
		User:       user.ID,
		Invitation: v.offer.ID,
		State:      *challenge.State,
	})
}

// createPasskeyAccount serves POST /invitation/passkey (token, name, credential): the same as createAccount, without a
// password.
func (h *Handler) createPasskeyAccount(v *visit) error {
	name, note, err := newName(v)
	if err != nil {
		return err
	}
	if note != "" {
		return h.refuseAccount(v, http.StatusBadRequest, notCreated, note, "")
	}
	by, known := h.Sessions.BoundToBrowser(v.r)
	if !known {
		return errChallenge
	}
	var begun registration
	answer, err := h.takeCreation(v, session.NewAccount, by, &begun)
	if err == nil && begun.Invitation != v.offer.ID {
		err = errChallenge
	}
	if err != nil {
		return err
	}
	holder := workspace.User{ID: begun.User, Email: v.offer.Email, Name: name}
	key, err := h.RelyingParty.FinishRegistration(holder, begun.State, answer)
	if err != nil {
		return err
	}
	key.Name = session.DeviceName(v.r.UserAgent())
	user := membership.NewUser{ID: key.UserID, Name: name}
	added, joined := membership.EventsOf(v.offer, user, web.RequestID(v.r.Context()))
	if err := h.Store.AcceptWithPasskey(v.r.Context(), v.offer, user, key, added, joined); err != nil {
		return err
	}
	return h.arrive(v, user.ID, name, session.Proof{Method: session.Passkey, PasskeyID: key.ID})
}
