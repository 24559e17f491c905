package invitation

import (
	"errors"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/displayname"
	"github.com/almonerhq/almoner/shared/web"
)

// Create serves POST /invitation/account. The account gets the invitation's address.
func (h *Handler) Create() http.Handler {
	return h.form(func(v visit) error {
		name, chosen := strings.TrimSpace(v.form.Get("name")), credential.Secret(v.form.Get("password"))
		nameNote := displayname.Check(name, displayname.MaxLength)
		passwordNote := password.CheckForm(chosen)
		switch {
		case v.signedIn:
			h.show(v, http.StatusConflict, func(page *view) { page.Problem = "You are signed in already." })
			return nil
		case v.tellsAccount():
			return membership.ErrAccountExists
		case nameNote != "" || passwordNote != "":
			h.refuse(v, http.StatusBadRequest, "The account was not created.", nameNote, passwordNote)
			return nil
		}
		from := h.Proxies.ClientAddress(v.r)
		caller := session.Caller{Email: v.offer.Email, Address: from}
		hash, note, err := password.Choose(
			v.r.Context(), h.Passwords, caller, chosen, h.Hash, name, v.offer.Email,
		)
		if errors.Is(err, session.ErrBusy) {
			web.SetRetryAfter(v.w.Header(), session.BusyFor)
			h.refuse(v, http.StatusTooManyRequests, "Too many people are signing in right now. Please try again in a "+
				"few seconds.", "", "")
			return nil
		}
		if err != nil {
			return err
		}
		if note != "" {
			h.refuse(v, http.StatusBadRequest, "The account was not created.", "", note)
			return nil
		}
		id, err := h.Members.AcceptAsNewUser(v.r.Context(), v.offer, name, hash, web.RequestID(v.r.Context()))
		if err != nil {
			return err
		}
		proof := session.Proof{Method: session.Password, PasswordHash: hash}
		by, event := session.Arrival(v.r, workspace.User{ID: id, Email: v.offer.Email, Name: name}, proof, from)
		return h.arrive(v, by, event)
	})
}

// refuse shows the form again with what was typed, except the password.
func (h *Handler) refuse(v visit, status int, problem, nameNote, passwordNote string) {
	h.show(v, status, func(page *view) {
		page.Problem, page.Name = problem, v.form.Get("name")
		page.NameNote, page.PasswordNote = nameNote, passwordNote
	})
}
