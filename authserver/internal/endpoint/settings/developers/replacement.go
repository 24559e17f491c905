package developers

import (
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

// A replacement is the credential that a form replaces.
type replacement struct {
	ID, Name string
	Secret   bool // of an application; otherwise a token
}

func ofToken(t pat.Token) replacement { return replacement{t.ID.String(), t.Name, false} }

func ofApp(c client.Client) replacement { return replacement{c.ID.String(), c.Name, true} }

// A replacementView is the page with the form that replaces a token or a secret.
type replacementView struct {
	common
	replacement
	ExpireOld bool // as typed
}

func (*replacementView) Template() string { return "replacement" }

// showTokenReplacement serves GET /settings/developers/replace.
func (h *Handler) showTokenReplacement(v *settings.Request, here settings.Scope) error {
	token, err := h.ownToken(v, here)
	if err != nil {
		return err
	}
	return h.showReplacement(v, here, http.StatusOK, ofToken(token), "")
}

// showSecretReplacement serves GET /settings/applications/secret.
func (h *Handler) showSecretReplacement(v *settings.Request, here settings.Scope) error {
	c, err := h.ownApp(v, here)
	if err != nil {
		return err
	}
	if c.Kind.Traits().Public {
		settings.Redirect(v.W, here.Path(applications))
		return nil
	}
	return h.showReplacement(v, here, http.StatusOK, ofApp(c), "")
}

// showReplacement shows the form. text is the error of its password field, or "". The other input is kept: a leaked
// secret must not stay valid because the password was mistyped first.
func (h *Handler) showReplacement(
	v *settings.Request, here settings.Scope, status int, what replacement, text string,
) error {
	section := map[bool]ui.Section{false: Section, true: applications}[what.Secret]
	common, err := h.common(v, here, section)
	if err != nil {
		return err
	}
	common.Title = "Replace " + what.Name
	view := &replacementView{common: common, replacement: what, ExpireOld: v.Form.Get("expire_old") == "yes"}
	if text != "" {
		view.Refuse("Nothing was created.", passwordProblem(what.ID, text))
	}
	h.Pages.Show(v.W, v.R, status, view)
	return nil
}
