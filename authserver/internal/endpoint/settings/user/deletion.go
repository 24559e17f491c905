package user

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
)

// deletionSection is the page on which users delete their account, for links back to it.
var deletionSection = ui.Section{Name: "user/delete", Title: "Delete your account"}

// A deletionView is Settings → User → Delete your account.
type deletionView struct {
	ui.Frame
	Key     string
	Effects []string                // what ends
	Stays   []string                // what does not
	Managed []useraccount.Workspace // workspaces that need another member who manages members (P2)
	Confirm bool                    // the user must reauthenticate first
	Note    string                  // the error of the checkbox
}

func (*deletionView) Template() string { return "deleteaccount" }

// showDeletion serves GET /settings/user/delete.
func (h *Handler) showDeletion() http.Handler {
	return h.Page(func(v *settings.Request) error {
		view, err := h.deletionView(v)
		if err != nil {
			return err
		}
		h.Pages.Show(v.W, v.R, http.StatusOK, view)
		return nil
	})
}

func (h *Handler) deletionView(v *settings.Request) (*deletionView, error) {
	summary, err := h.Accounts.Summary(v.R.Context(), v.Current.User.ID)
	if err != nil {
		return nil, err
	}
	frame, err := h.Frame(v, Section)
	if err != nil {
		return nil, err
	}
	frame.Title = deletionSection.Title
	return &deletionView{
		Frame:   frame,
		Key:     h.NewKey(v),
		Effects: effects(summary),
		Stays:   stays(summary),
		Managed: summary.Unmanaged(),
		Confirm: !v.Current.MayChangeFactors(h.Now()),
	}, nil
}

// deleteAccount serves POST /settings/user/delete: confirm.
func (h *Handler) deleteAccount() http.Handler {
	return h.Form(deletionSection, func(v *settings.Request) error {
		view, err := h.deletionView(v)
		if err != nil {
			return err
		}
		if view.Confirm || len(view.Managed) > 0 {
			view.Problem = "Nothing was deleted."
			h.Pages.Show(v.W, v.R, http.StatusConflict, view)
			return nil
		}
		if v.Form.Get("confirm") != "yes" {
			view.Note = "Tick this box to delete your account."
			view.Refuse("Nothing was deleted.", ui.ProblemAt("confirm", "confirm", "Confirmation", view.Note))
			h.Pages.Show(v.W, v.R, http.StatusBadRequest, view)
			return nil
		}
		event := v.Event(nil, audit.UserDeleted, v.Current.Actor(), nil)
		err = h.Accounts.Delete(v.R.Context(), v.Current.User.ID, event)
		if errors.Is(err, membership.ErrLastHolder) { // another manager left after the page was shown
			return h.Done(v, deletionSection.Path(), "Nothing was deleted.")
		}
		if err != nil {
			return err
		}
		if err := h.Sessions.End(v.W, v.R); err != nil {
			return err
		}
		settings.Redirect(v.W, "/login?"+ui.AccountDeleted+"=1")
		return nil
	})
}

// effects returns what ends with the account, in words.
func effects(s useraccount.Summary) []string {
	lines := []string{"Your name and your e-mail address are removed, and you are signed out of all browsers."}
	for _, w := range s.Workspaces {
		lines = append(lines, "You leave the workspace "+w.Name+".")
	}
	if s.Connections+s.Tokens > 0 {
		lines = append(lines, fmt.Sprintf("%s and %s stop working.",
			count(s.Connections, "connected app"), count(s.Tokens, "personal access token")))
	}
	if s.SignInMethods > 0 {
		lines = append(lines, fmt.Sprintf("Your passkeys, linked accounts and authenticator app are removed (%s).",
			count(s.SignInMethods, "sign-in method")))
	}
	if s.Invitations > 0 {
		lines = append(lines, "Invitations that you sent and that are still open are withdrawn.")
	}
	return append(lines, "Invitations that you have not answered are declined.")
}

// stays returns what does not end with the account, in words.
func stays(s useraccount.Summary) []string {
	var lines []string
	if s.Applications > 0 {
		lines = append(lines, fmt.Sprintf("%s that you registered, in their workspaces.",
			count(s.Applications, "application")))
	}
	return append(lines,
		"What you entered in a workspace, such as programmes and forms.",
		"Entries in audit logs. They show an identifier in place of your name.",
	)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
