package members

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"
)

// invitePage serves GET /settings/members/invite.
func (h *Handler) invitePage() http.Handler {
	return h.Page(func(v *settings.Request) error {
		here, err := h.At(v, v.R.URL.Query().Get("tenant"), inviteSection)
		if err != nil {
			return err
		}
		asked, err := h.askedBy(v, here, v.R.URL.Query().Get("asked"))
		if err != nil {
			return err
		}
		if asked != nil {
			_, err := h.store.WorkspaceMember(v.R.Context(), here.Workspace.ID, asked.UserID)
			switch {
			case err == nil: // invited since
				asked = nil
			case !errors.Is(err, membership.ErrNoMember):
				return err
			}
		}
		return h.showInvite(v, here, http.StatusOK, func(page *invitePage) { page.fillIn(asked) })
	})
}

// showInvite shows the form, changed by adjust.
func (h *Handler) showInvite(v *settings.Request, here settings.Scope, status int, adjust func(*invitePage)) error {
	frame, err := h.FrameIn(v, here, inviteSection)
	if err != nil {
		return err
	}
	page := &invitePage{
		Frame:     frame,
		Key:       h.NewKey(v),
		Workspace: here.View(),
		Held:      here.Permissions,
	}
	for _, preset := range membership.Presets() {
		if here.Permissions.HasAll(preset.Permissions) {
			page.Presets = append(page.Presets, preset)
		}
	}
	adjust(page)
	h.Pages.Show(v.W, v.R, status, page)
	return nil
}

// invite serves POST /settings/members/invite: email, permissions; replace is the address whose open invitation the new
// one replaces. With preset, it only fills the form with the preset's permissions.
func (h *Handler) invite() http.Handler {
	return h.changing(func(v *settings.Request, here settings.Scope) error {
		again := func(status int, problems ...ui.Problem) error {
			return h.showInvite(v, here, status, func(page *invitePage) {
				page.Email, page.Chosen = v.Form.Get("email"), perm.FromStrings(v.Form["permissions"])
				for _, preset := range membership.Presets() {
					if preset.Name == v.Form.Get("preset") {
						page.Chosen = preset.Permissions
					}
				}
				if len(problems) > 0 {
					page.Refuse("The invitation was not sent.", problems...)
				}
			})
		}
		if v.Form.Get("preset") != "" {
			return again(http.StatusOK)
		}
		email := strings.TrimSpace(v.Form.Get("email"))
		if problems := inviteProblems(email, v.Form["permissions"]); len(problems) > 0 {
			return again(http.StatusBadRequest, problems...)
		}
		// The form may be sent again for another address.
		id := uuid.NewSHA1(v.Key.Makes, []byte(here.Workspace.ID.String()+email))
		made, err := h.members.InviteOnce(v.R.Context(), actorIn(v, here), id, email, v.Form["permissions"],
			v.Form.Get("replace") == email)
		switch {
		case errors.Is(err, membership.ErrSent):
			return h.Done(v, here.Path(Section), "The invitation was already sent."+h.linkOnce())
		case errors.Is(err, membership.ErrInvited):
			return h.showInvite(v, here, http.StatusConflict, func(page *invitePage) {
				page.Email, page.Chosen, page.Invited = email, perm.FromStrings(v.Form["permissions"]), true
				page.Refuse("The invitation was not sent.", inviteProblem(membership.Refusal{
					Field: "email",
					Message: "This address has an open invitation. If you send a new one, the earlier link " +
						"stops working.",
				}))
			})
		}
		if field, status := refusedField(err); field.Field != "" {
			setRetryAfter(v, err)
			return again(status, inviteProblem(field))
		}
		if err != nil {
			return err
		}
		return h.showSent(v, here, made)
	})
}

// inviteProblems returns the errors of all fields that can be checked without the database.
func inviteProblems(email string, permissions []string) ui.Problems {
	var problems ui.Problems
	_, noEmail := membership.ParseEmail(email)
	_, noPermissions := membership.ParsePermissions(permissions)
	for _, err := range []error{noEmail, noPermissions} {
		if refusal, invalid := errors.AsType[*membership.Refusal](err); invalid {
			problems = append(problems, inviteProblem(*refusal))
		}
	}
	return problems
}

func inviteProblem(r membership.Refusal) ui.Problem {
	if r.Field == "permissions" {
		return permissionsProblem("invite-permissions", r.Message)
	}
	return ui.ProblemAt(r.Field, "invite-"+r.Field, "E-mail address", r.Message)
}

// permissionsProblem returns the error of the permissions, whose element id is at.
func permissionsProblem(at, text string) ui.Problem {
	return ui.ProblemAt("permissions", at, "Permissions", text)
}

// refusedField returns the field that an error of an invitation concerns, with the status, or an empty refusal.
func refusedField(err error) (membership.Refusal, int) {
	refusal, invalid := errors.AsType[*membership.Refusal](err)
	missing, notHeld := errors.AsType[*membership.NotHeld](err)
	limited, tooMany := errors.AsType[*membership.LimitError](err)
	switch {
	case tooMany:
		return membership.Refusal{Field: "email", Message: limitWords(limited)}, http.StatusTooManyRequests
	case invalid:
		return *refusal, http.StatusBadRequest
	case notHeld:
		return membership.Refusal{Field: "permissions", Message: notHeldWords(missing)}, http.StatusForbidden
	case errors.Is(err, membership.ErrMember):
		return membership.Refusal{Field: "email", Message: "A member has this address already."}, http.StatusConflict
	case errors.Is(err, membership.ErrTooManyInvited):
		return membership.Refusal{
			Field:   "email",
			Message: "The workspace has too many open invitations. Withdraw some first.",
		}, http.StatusConflict
	}
	return membership.Refusal{}, 0
}

// limitWords says which limit was reached and when one more invitation can be sent.
func limitWords(limited *membership.LimitError) string {
	return limited.Text + " Try again in " + duration(limited.Wait) + "."
}

// duration returns a time to wait in words, rounded up.
func duration(wait time.Duration) string {
	if hours := int((wait + time.Hour - 1) / time.Hour); hours > 1 {
		return count(hours, "hour")
	}
	return count(max(1, int((wait+time.Minute-1)/time.Minute)), "minute")
}

// setRetryAfter writes the headers of a reached limit, if err is one.
func setRetryAfter(v *settings.Request, err error) {
	if limited, ok := errors.AsType[*membership.LimitError](err); ok {
		web.SetRateLimited(v.W.Header(), limited.Wait, limited.RateLimit())
	}
}

func notHeldWords(missing *membership.NotHeld) string {
	var titles []string
	for _, p := range missing.Missing {
		entry, _ := perm.Describe(p)
		titles = append(titles, "“"+entry.Title+"”")
	}
	return "You can only give permissions that you have. You do not have " + strings.Join(titles, ", ") + "."
}

// showSent shows the link, only this time, if the inviter has to deliver it.
func (h *Handler) showSent(v *settings.Request, here settings.Scope, made membership.Sent) error {
	if h.members.Mailed() {
		return h.Done(v, here.Path(Section), "We sent an invitation to "+made.Email+". Its link works for 7 days.")
	}
	return h.show(v, here, http.StatusOK, func(page *view) { page.Sent = &sent{made.Email, made.Link.Reveal()} })
}

// linkOnce says how to get the link of an invitation, if this deployment does not send it.
func (h *Handler) linkOnce() string {
	if h.members.Mailed() {
		return ""
	}
	return " Its link was shown only once. To get a new link, choose “Send again”."
}

// renew serves POST /settings/members/renew: id, seen.
func (h *Handler) renew() http.Handler {
	return h.changing(func(v *settings.Request, here settings.Scope) error {
		id, known := v.ID()
		err := membership.ErrNoInvitation
		var made membership.Sent
		if seen, malformed := time.Parse(time.RFC3339Nano, v.Form.Get("seen")); known && malformed == nil {
			made, err = h.members.Renew(v.R.Context(), actorIn(v, here), id, seen)
		}
		if missing, notHeld := errors.AsType[*membership.NotHeld](err); notHeld {
			return h.show(v, here, http.StatusForbidden, func(page *view) {
				page.Problem = "The invitation was not sent again. " + notHeldWords(missing)
			})
		}
		if limited, ok := errors.AsType[*membership.LimitError](err); ok {
			setRetryAfter(v, err)
			return h.show(v, here, http.StatusTooManyRequests, func(page *view) {
				page.Problem = "The invitation was not sent again, and its link still works. " + limitWords(limited)
			})
		}
		switch {
		case errors.Is(err, membership.ErrNoInvitation):
			return h.Done(v, here.Path(Section),
				"The invitation was already sent again, answered or withdrawn."+h.linkOnce())
		case err != nil:
			return err
		}
		return h.showSent(v, here, made)
	})
}

// withdraw serves POST /settings/members/withdraw: id.
func (h *Handler) withdraw() http.Handler {
	return h.changing(func(v *settings.Request, here settings.Scope) error {
		id, known := v.ID()
		err := membership.ErrNoInvitation
		if known {
			err = h.members.Withdraw(v.R.Context(), actorIn(v, here), id)
		}
		switch {
		case errors.Is(err, membership.ErrNoInvitation):
			return h.Done(v, here.Path(Section), "The invitation was already answered or withdrawn.")
		case err != nil:
			return err
		}
		return h.Done(v, here.Path(Section), "The invitation was withdrawn.")
	})
}
