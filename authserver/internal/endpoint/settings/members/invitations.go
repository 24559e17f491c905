package members

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"
)

// invite serves POST /settings/members/invite: email, permissions. With preset, it only fills the form with the
// preset's permissions.
func (h *Handler) invite() http.Handler {
	return h.changing(func(v *settings.Request, here settings.Scope) error {
		typed := invitationForm{
			Open:   true,
			Email:  v.Form.Get("email"),
			Chosen: perm.FromStrings(v.Form["permissions"]),
		}
		if name := v.Form.Get("preset"); name != "" {
			for _, preset := range membership.Presets() {
				if preset.Name == name {
					typed.Chosen = preset.Permissions
				}
			}
			return h.show(v, here, http.StatusOK, func(page *view) { page.New = typed })
		}
		made, err := h.members.Invite(v.R.Context(), actorIn(v, here), strings.TrimSpace(typed.Email),
			v.Form["permissions"])
		field, status := refusedField(err)
		setRetryAfter(v, err)
		if field.Field != "" {
			typed.Notes = map[string]string{field.Field: field.Message}
			return h.show(v, here, status, func(page *view) {
				page.New = typed
				page.Problem = "The invitation was not sent. " + field.Message
				page.ProblemAt = "invite-" + field.Field
			})
		}
		if err != nil {
			return err
		}
		return h.showSent(v, here, made)
	})
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

func (h *Handler) showSent(v *settings.Request, here settings.Scope, made membership.Sent) error {
	result := &sent{Email: made.Email}
	if !h.members.Mailed() {
		result.Link = made.Link.Reveal()
	}
	return h.show(v, here, http.StatusOK, func(page *view) { page.Sent = result })
}

// renew serves POST /settings/members/renew: id.
func (h *Handler) renew() http.Handler {
	return h.changing(func(v *settings.Request, here settings.Scope) error {
		id, known := v.ID()
		err := membership.ErrNoInvitation
		var made membership.Sent
		if known {
			made, err = h.members.Renew(v.R.Context(), actorIn(v, here), id)
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
			return h.Done(v, here.Path(Section), "The invitation was answered or withdrawn already.")
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
			return h.Done(v, here.Path(Section), "The invitation was answered or withdrawn already.")
		case err != nil:
			return err
		}
		return h.Done(v, here.Path(Section), "The invitation was withdrawn.")
	})
}
