package signin

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

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

// createAccount serves POST /invitation/account. The account gets the invitation's address.
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
	hash, note, err := password.Choose(ctx, h.Passwords, caller, chosen, h.Cost.Hash, name, i.offer.Email)
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
	User       uuid.UUID       `json:"user"`
	Invitation uuid.UUID       `json:"invitation"`
	State      json.RawMessage `json:"state"`
}

// newAccountOptions serves POST /invitation/passkey/options, which the page's script sends.
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
	return h.sendChallenge(v, loginstate.NewAccount, h.States.BindToBrowser(v.w, v.r), challenge, registration{
		User:       user.ID,
		Invitation: i.offer.ID,
		State:      challenge.State,
	})
}

// createPasskeyAccount serves POST /invitation/passkey. The account has the invitation's address and no password.
func (h *Handler) createPasskeyAccount(i *invited) error {
	name, note, err := newName(i)
	if err != nil {
		return err
	}
	if note != "" {
		return h.refuseAccount(i, http.StatusBadRequest, notCreated, note, "")
	}
	by, known := h.States.BoundToBrowser(i.r)
	if !known {
		return h.notAccepted(i.visit, unknownChallenge)
	}
	var begun registration
	answer, err := h.takeCreation(i.visit, loginstate.NewAccount, by, &begun)
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
