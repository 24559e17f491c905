package settings

import (
	"net/http"
	"strconv"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
)

const (
	securityPath = "/settings/security"
	recentEvents = 30
)

// Security serves GET /settings/security.
func (h *Handler) Security() http.Handler {
	return h.page(func(v *request) error {
		signIns, err := h.Store.SignInsOf(v.r.Context(), v.current.User.ID)
		if err != nil {
			return err
		}
		tokens, err := h.Store.ActiveTokens(v.r.Context(), v.current.User.ID)
		if err != nil {
			return err
		}
		events, err := h.Store.EventsOfUser(v.r.Context(), v.current.User.ID, recentEvents)
		if err != nil {
			return err
		}
		frame, err := h.frame(v, "security", "Security")
		if err != nil {
			return err
		}
		view := &ui.Security{Frame: frame, Key: h.newKey(v.current)}
		for _, s := range signIns {
			view.SignIns = append(view.SignIns, ui.SignIn{
				ID:       s.ID.String(),
				Device:   device(s.UserAgent),
				Address:  s.Address,
				Since:    s.Created,
				LastSeen: s.LastSeen,
				This:     s.ID == v.current.SignInID,
			})
		}
		for _, t := range tokens {
			view.Tokens = append(view.Tokens, ui.Token{
				ID:          t.ID.String(),
				Name:        t.Name,
				Workspace:   t.Workspace,
				Permissions: t.Permissions,
				Created:     t.Created,
				Expires:     t.Expires,
				LastUsed:    t.LastUsed,
			})
		}
		for _, e := range events {
			view.Events = append(view.Events, eventView(e, &v.current.User.ID))
		}
		h.Pages.Show(v.w, v.r, http.StatusOK, view)
		return nil
	})
}

// SignOut serves POST /settings/security/sign-out. It ends one other sign-in of the user.
func (h *Handler) SignOut() http.Handler {
	return h.form(securityPath, func(v *request) error {
		id, ok := v.id()
		if !ok {
			return h.done(v, securityPath, "The browser is no longer signed in.")
		}
		err := h.Store.EndSignIn(
			v.r.Context(),
			v.current.User.ID,
			id,
			v.event(nil, audit.SignInEnded, "sign_in:"+id.String(), nil),
		)
		if err != nil {
			return err
		}
		return h.done(v, securityPath, "The browser was signed out.")
	})
}

// SignOutOthers serves POST /settings/security/sign-out-others.
func (h *Handler) SignOutOthers() http.Handler {
	return h.form(securityPath, func(v *request) error {
		ended, err := h.Store.EndOtherSignIns(v.r.Context(), v.current.User.ID, v.current.SignInID,
			v.event(nil, audit.SignInOthersEnded, "user:"+v.current.User.ID.String(), nil))
		if err != nil {
			return err
		}
		notice := strconv.FormatInt(ended, 10) + " other browsers were signed out."
		if ended == 1 {
			notice = "1 other browser was signed out."
		}
		return h.done(v, securityPath, notice)
	})
}
