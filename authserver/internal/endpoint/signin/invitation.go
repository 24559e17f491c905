package signin

import (
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
	"github.com/almonerhq/almoner/shared/contract/identity"
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

// Template implements ui.View.
func (*invitationPage) Template() string { return "invitation" }

// An invited is a request with the token of an open invitation.
type invited struct {
	*visit
	token    string
	offer    membership.Offer
	signedIn bool
}

// tellsAccount reports whether a user has the address, and the page may say so. If the link was not mailed, the inviter
// has it, who must not learn this.
func (i *invited) tellsAccount() bool { return i.offer.HasAccount && i.offer.Mailed }

// path returns the local path of the page.
func (i *invited) path() string { return "/invitation?token=" + url.QueryEscape(i.token) }

// invited reads the invitation of a token and the user at the browser.
func (h *Handler) invited(v *visit) (*invited, error) {
	i := &invited{visit: v, token: v.form.Get("token")}
	var err error
	if i.current, i.signedIn, err = h.Sessions.CurrentUser(v.r.Context()); err == nil {
		i.offer, err = h.Members.Offer(v.r.Context(), credential.Secret(i.token))
	}
	return i, err
}

// showInvitation serves GET /invitation (token): who invites to what.
func (h *Handler) showInvitation(v *visit) error {
	i, err := h.invited(v)
	if err != nil {
		return h.explain(i, err)
	}
	return h.showInvited(i, http.StatusOK, "")
}

// showInvited shows the invitation, with a problem if there is one.
func (h *Handler) showInvited(i *invited, status int, problem string) error {
	return h.fillIn(i, status, &invitationPage{Frame: ui.Frame{Problem: problem}})
}

// refuseAccount shows the invitation with the form for a new account as it was typed, except the password.
func (h *Handler) refuseAccount(i *invited, status int, problem, nameNote, passwordNote string) error {
	return h.fillIn(i, status, &invitationPage{
		Frame:        ui.Frame{Problem: problem},
		Name:         i.form.Get("name"),
		NameNote:     nameNote,
		PasswordNote: passwordNote,
	})
}

// fillIn adds the invitation to the page and shows it, or shows that the invitation is for another user.
func (h *Handler) fillIn(i *invited, status int, page *invitationPage) error {
	page.Title = "Invitation to " + i.offer.Workspace
	page.Workspace, page.Organisation = i.offer.Workspace, i.offer.Organisation
	page.Inviter, page.Email, page.Permissions = i.offer.Inviter, i.offer.Email, i.offer.Permissions
	page.HasAccount, page.Mailed = i.tellsAccount(), i.offer.Mailed
	page.Token, page.SignIn, page.Passkeys = i.token, signInPath(i.path()), h.RelyingParty != nil
	page.AsksPasskey = page.Passkeys && !i.signedIn && !page.HasAccount
	if i.signedIn {
		page.Person, page.Key = person(i.current.User), h.invitations.Seal([]byte(keyOf(i)))
		if spelling.Key(i.current.User.Email) != spelling.Key(i.offer.Email) {
			return h.showOther(i)
		}
	}
	return h.show(i.visit, status, page)
}

func (h *Handler) showOther(i *invited) error {
	m := message(http.StatusForbidden, "This invitation is for another account",
		"It was sent to "+i.offer.Email+". You are signed in with another address and cannot accept it. "+
			"Nothing was changed.",
		"To accept it, sign in as "+i.offer.Email+".", toSettings())
	m.Person, m.Switch = person(i.current.User), i.path()
	return h.tell(i.visit, m)
}

// keyOf binds a form to the sign-in and the invitation that it was shown for.
func keyOf(i *invited) string {
	return i.current.SignInID.String() + " " + hex.EncodeToString(credential.Hash(i.token))
}

func (h *Handler) opensKey(i *invited) bool {
	content, err := h.invitations.Open(i.form.Get("key"))
	return err == nil && string(content) == keyOf(i)
}

// invitationForm serves a form with the token of an open invitation.
func (h *Handler) invitationForm(serve func(*invited) error) http.Handler {
	return h.form(invitation, func(v *visit) error {
		i, err := h.invited(v)
		if err != nil {
			return h.explain(i, err)
		}
		if v.limited(h.Attempts.Answered(v.r.Context(), credential.Secret(i.token), h.address(v))) {
			return h.refuseAccount(i, http.StatusTooManyRequests, "There were too many attempts to answer this "+
				"invitation. Nothing was changed. Please try again in a few minutes.", "", "")
		}
		return h.explain(i, serve(i))
	})
}

// answer serves POST /invitation (token, key, decision: accept or decline).
func (h *Handler) answer(i *invited) error {
	decision := i.form.Get("decision")
	switch {
	case decision != "accept" && decision != "decline":
		return h.showInvited(i, http.StatusBadRequest, "Accept or decline the invitation.")
	case i.signedIn && !h.opensKey(i):
		return h.showInvited(i, http.StatusForbidden,
			"This page was opened in another session. Nothing was changed. Please answer again.")
	case decision == "decline":
		return h.decline(i)
	case !i.signedIn:
		return i.redirect(signInPath(i.path()) + "&" + ui.Unsent + "=1")
	}
	event := i.current.Event(i.r.Context(), audit.MemberAdded, "")
	if err := h.Members.Accept(i.r.Context(), i.offer, i.current.User.ID, event); err != nil {
		return err
	}
	return h.welcome(i)
}

func (h *Handler) decline(i *invited) error {
	event := audit.Event{Actor: "anonymous", RequestID: web.RequestID(i.r.Context())}
	var user *uuid.UUID
	if i.signedIn {
		event = i.current.Event(i.r.Context(), audit.InvitationDeclined, "")
		user = &i.current.User.ID
	}
	if err := h.Members.Decline(i.r.Context(), i.offer, user, event); err != nil {
		return err
	}
	return h.tell(i.visit, message(http.StatusOK, "You declined the invitation",
		"You are not a member of "+i.offer.Workspace+", and the link no longer works.", ""))
}

func (h *Handler) welcome(i *invited) error {
	return h.done(i.visit, home, "You are now a member of "+i.offer.Workspace+".")
}

// showUsed leads a member whose invitation was accepted to the settings, and says to others that it is not valid.
func (h *Handler) showUsed(i *invited) error {
	if i.limited(h.Attempts.UnknownLink(i.r.Context(), h.address(i.visit))) {
		return h.tell(i.visit, message(http.StatusTooManyRequests, "Too many invalid links",
			"Too many invalid links to invitations were opened from your network.",
			"A valid link still works if you open it completely. Otherwise, please try again in a few minutes."))
	}
	m := message(http.StatusNotFound, "This invitation is not valid",
		"The link may be incomplete. Or the invitation was answered, withdrawn or sent again with a new link, or it "+
			"is older than 7 days.",
		"If you have accepted it, sign in. Otherwise, ask the person who invited you for a new invitation.",
		ui.Link{Href: signInPath(i.path()), Text: "Sign in"})
	if i.signedIn {
		joined, err := h.Members.Joined(i.r.Context(), credential.Secret(i.token), i.current.User.ID)
		if err == nil {
			err = h.done(i.visit, home, "You are already a member of "+joined+".")
		}
		if !errors.Is(err, membership.ErrNoInvitation) {
			return err
		}
		m.Person, m.Links = person(i.current.User), []ui.Link{toSettings()}
		m.Next = "Ask the person who invited you for a new invitation."
	}
	return h.tell(i.visit, m)
}

// explain shows why an invitation was not answered. It returns other errors.
func (h *Handler) explain(i *invited, err error) error {
	switch {
	case errors.Is(err, membership.ErrNoInvitation):
		return h.showUsed(i)
	case errors.Is(err, membership.ErrOtherAddress):
		return h.showInvited(i, http.StatusForbidden, "")
	case errors.Is(err, membership.ErrUnproven):
		return h.tell(i.visit, ui.Unproven("You cannot join another workspace before that. Nothing was changed.",
			h.Members.Mailed()))
	case errors.Is(err, membership.ErrInviter):
		return h.tell(i.visit, message(http.StatusConflict, "This invitation can no longer be accepted",
			i.offer.Inviter+" may no longer give these permissions in "+i.offer.Workspace+".",
			"Ask an administrator of the workspace for a new invitation."))
	case errors.Is(err, membership.ErrMember):
		return h.tell(i.visit, message(http.StatusConflict, "You are already a member of "+i.offer.Workspace,
			"The invitation changes nothing.", "", toSettings()))
	case errors.Is(err, errNotAccepted), errors.Is(err, membership.ErrPasskeyExists):
		return h.refuseAccount(i, http.StatusBadRequest, "The passkey was not accepted, and the account was not "+
			"created. Please try again.", "", "")
	case errors.Is(err, errSignedIn):
		return h.showInvited(i, http.StatusConflict, "You are signed in already.")
	case errors.Is(err, membership.ErrAccountExists):
		i.offer.HasAccount = true
		if !i.offer.Mailed {
			return h.showInvited(i, http.StatusConflict,
				"The account was not created. If you have one already, sign in to answer the invitation.")
		}
		return h.showInvited(i, http.StatusConflict,
			"There is an account with this address. Sign in to answer the invitation.")
	case errors.Is(err, audit.ErrNotAuthorized):
		i.signedIn = false
		return h.showInvited(i, http.StatusForbidden, "You were signed out. Nothing was changed.")
	}
	return err
}

// errSignedIn means that a new account was requested by a user who is signed in.
var errSignedIn = errors.New("the user is signed in already")

const notCreated = "The account was not created."

// newName returns the name of the new account in the form, or an error message for its field. Its error says why there
// can be no new account.
func newName(i *invited) (name, note string, err error) {
	switch {
	case i.signedIn:
		return "", "", errSignedIn
	case i.tellsAccount():
		return "", "", membership.ErrAccountExists
	}
	name = strings.TrimSpace(i.form.Get("name"))
	return name, displayname.Check(name, displayname.MaxLength), nil
}

// createAccount serves POST /invitation/account (token, name, password): it creates an account with the invitation's
// address, accepts and signs in.
func (h *Handler) createAccount(i *invited) error {
	name, nameNote, err := newName(i)
	if err != nil {
		return err
	}
	chosen := credential.Secret(i.form.Get("password"))
	if note := password.CheckForm(chosen); nameNote != "" || note != "" {
		return h.refuseAccount(i, http.StatusBadRequest, notCreated, nameNote, note)
	}
	ctx := i.r.Context()
	caller := session.Caller{Email: i.offer.Email, Address: h.address(i.visit)}
	hash, note, err := password.Choose(ctx, h.Passwords, caller, chosen, name, i.offer.Email)
	if problem := notChecked(i.visit, session.Result{}, err); problem != "" {
		return h.refuseAccount(i, http.StatusTooManyRequests, problem, "", "")
	}
	if err != nil {
		return err
	}
	if note != "" {
		return h.refuseAccount(i, http.StatusBadRequest, notCreated, "", note)
	}
	id, err := h.Members.AcceptAsNewUser(ctx, i.offer, name, hash, web.RequestID(ctx))
	if err != nil {
		return err
	}
	return h.arrive(i, id, name, session.Proof{Method: session.Password, PasswordHash: hash})
}

// arrive signs the new user in.
func (h *Handler) arrive(i *invited, id uuid.UUID, name string, proof session.Proof) error {
	user := workspace.User{ID: id, Email: i.offer.Email, Name: name}
	if err := h.begin(i.visit, user, proof); err != nil {
		return err
	}
	return h.welcome(i)
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
	i, err := h.invited(v)
	switch {
	case errors.Is(err, membership.ErrNoInvitation):
		return v.refuse(http.StatusNotFound, "This invitation is not valid.")
	case err != nil:
		return err
	}
	name, note, err := newName(i)
	switch {
	case err != nil:
		return v.refuse(http.StatusConflict, "There is an account with this address. Open the page again.")
	case note != "":
		return v.refuse(http.StatusBadRequest, note)
	}
	user := workspace.User{ID: identity.New(), Email: i.offer.Email, Name: name}
	challenge, err := h.RelyingParty.BeginRegistration(user, nil)
	if err != nil {
		return err
	}
	return h.sendChallenge(v, session.NewAccount, h.Sessions.BindToBrowser(v.w, v.r), challenge, registration{
		User:       user.ID,
		Invitation: i.offer.ID,
		State:      *challenge.State,
	})
}

// createPasskeyAccount serves POST /invitation/passkey (token, name, credential): the same as createAccount, without a
// password.
func (h *Handler) createPasskeyAccount(i *invited) error {
	name, note, err := newName(i)
	if err != nil {
		return err
	}
	if note != "" {
		return h.refuseAccount(i, http.StatusBadRequest, notCreated, note, "")
	}
	by, known := h.Sessions.BoundToBrowser(i.r)
	if !known {
		return h.notAccepted(i.visit, unknownChallenge)
	}
	var begun registration
	answer, err := h.takeCreation(i.visit, session.NewAccount, by, &begun)
	if err == nil && begun.Invitation != i.offer.ID {
		err = h.notAccepted(i.visit, unknownChallenge)
	}
	if err != nil {
		return err
	}
	holder := workspace.User{ID: begun.User, Email: i.offer.Email, Name: name}
	key, err := h.finishCreation(i.visit, holder, begun.State, answer)
	if err != nil {
		return err
	}
	key.Name = session.DeviceName(i.r.UserAgent())
	user := membership.NewUser{ID: key.UserID, Name: name}
	added, joined := membership.EventsOf(i.offer, user, web.RequestID(i.r.Context()))
	if err := h.Store.AcceptWithPasskey(i.r.Context(), i.offer, user, key, added, joined); err != nil {
		return err
	}
	return h.arrive(i, user.ID, name, session.Proof{Method: session.Passkey, PasskeyID: key.ID})
}
