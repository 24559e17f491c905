package passkeys

import (
	"net/http"
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// Page serves GET /settings/passkeys.
func (h *Handler) Page(w http.ResponseWriter, r *http.Request) {
	current, signedIn, err := h.Sessions.CurrentUser(r.Context())
	if err == nil && !signedIn {
		goOn(w, signIn(pagePath))
		return
	}
	if err == nil {
		err = h.show(w, r, current, http.StatusOK, ui.Passkeys{
			Name:   session.DeviceName(r.UserAgent()),
			Return: ui.LocalPath(r.URL.Query().Get("return"), ""),
		})
	}
	if err != nil {
		h.fail(w, r, err)
	}
}

// show adds the user's data to the page and writes it.
func (h *Handler) show(
	w http.ResponseWriter,
	r *http.Request,
	current session.CurrentUser,
	status int,
	page ui.Passkeys,
) error {
	has, err := h.Store.Passkeys(r.Context(), current.User.ID)
	if err != nil {
		return err
	}
	notice, err := h.Sessions.TakeFlash(w, r)
	if err != nil {
		return err
	}
	if page.Switcher, err = h.Switcher(r, current, "security"); err != nil {
		return err
	}
	page.Title, page.Section, page.Held = "Passkeys", "security", current.Held
	page.Notice, page.AsksPasskey = notice, true
	page.Person = &ui.Person{Name: current.User.Name, Email: current.User.Email}
	page.Key, page.Fresh, page.MaxName = h.newKey(current), current.MayChangeFactors(h.Now()), passkey.MaxName
	page.Again = again(pagePath)
	if page.Return != "" {
		page.Again = again(pagePath + "?return=" + url.QueryEscape(page.Return))
	}
	page.Full = len(has) >= passkey.MaxPerUser
	for _, p := range has {
		page.Passkeys = append(page.Passkeys, ui.Passkey{
			ID:       p.ID.String(),
			Name:     p.Name,
			Synced:   p.BackedUp,
			Copied:   p.CopiedAt != nil,
			Created:  p.Created,
			LastUsed: p.LastUsed,
		})
	}
	h.Pages.Show(w, r, status, &page)
	return nil
}
