package settings

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// An inviteView is the page with the form for an invitation.
type inviteView struct {
	page
	Choices perm.Set   // permissions that the user may give
	Asked   *askedView // the request that the form was filled in from, or nil
	Invited bool       // the address has an open invitation, which the form replaces
}

// showInvite shows the form, filled in for the user who asked for access, unless that user was invited since.
func (s *Settings) showInvite(r *request) error {
	asked, err := s.askedBy(r, r.form.Get("asked"))
	if err != nil {
		return err
	}
	view := &inviteView{}
	if asked == nil {
		return s.inviteForm(r, view)
	}
	switch _, err = s.Store.WorkspaceMember(r.ctx(), r.here.Workspace.ID, asked.UserID); {
	case errors.Is(err, membership.ErrNoMember):
		chosen := asked.Permissions.Intersect(r.here.Permissions)
		view.Asked, view.Form = asked, url.Values{"email": {asked.Email}, "permissions": chosen.Strings()}
	case err != nil:
		return err
	}
	return s.inviteForm(r, view)
}

func (s *Settings) inviteForm(r *request, view *inviteView) error {
	r.section, view.Choices = inviteSection, r.here.Permissions
	return r.show("invite", view)
}

// invite takes email, and permissions or preset; replace is the address whose open invitation the new one replaces.
func (s *Settings) invite(r *request) error {
	r.chooseRole(r.here.Permissions)
	email, permissions := strings.TrimSpace(r.form.Get("email")), r.form["permissions"]
	typed := &inviteView{page: page{Form: r.form}}
	const notSent = "The invitation was not sent."
	// Both fields are checked here, so that the page shows both errors.
	_, noEmail := membership.ParseEmail(email)
	_, noPermissions := membership.ParsePermissions(permissions)
	for _, err := range []error{noEmail, noPermissions} {
		if refusal, invalid := errors.AsType[*membership.Refusal](err); invalid {
			r.reject("invite "+refusal.Field, refusal.Message)
		}
	}
	if r.rejected(notSent) {
		return s.inviteForm(r, typed)
	}
	// The form may be sent again for another address.
	id := uuid.NewSHA1(r.key.Makes, []byte(r.here.Workspace.ID.String()+email))
	sent, err := s.Members.InviteOnce(r.ctx(), r.actor(), id, email, permissions, r.form.Get("replace") == email)
	switch {
	case err == nil:
		return s.showSent(r, sent)
	case errors.Is(err, membership.ErrSent):
		return r.done(nil, "The invitation was already sent."+s.linkOnce())
	case errors.Is(err, membership.ErrInvited):
		typed.Invited = true
		r.form.Set("email", email)
		return s.inviteForm(r.refuse(http.StatusConflict, notSent, problemOf("invite email",
			"This address has an open invitation. If you send a new one, the earlier link stops working.")), typed)
	}
	refusal, status := r.refusedField(err)
	if refusal.Field == "" {
		return err
	}
	return s.inviteForm(r.refuse(status, notSent, problemOf("invite "+refusal.Field, refusal.Message)), typed)
}

// refusedField returns the field that an error of an invitation concerns, with the status, or an empty refusal. It sets
// the headers of a reached limit.
func (r *request) refusedField(err error) (membership.Refusal, int) {
	refusal, invalid := errors.AsType[*membership.Refusal](err)
	missing, notHeld := errors.AsType[*membership.NotHeld](err)
	limited, tooMany := errors.AsType[*membership.LimitError](err)
	switch {
	case tooMany:
		web.SetRateLimited(r.w.Header(), limited.Wait, limited.RateLimit())
		return membership.Refusal{Field: "email", Message: limitWords(limited)}, http.StatusTooManyRequests
	case invalid:
		return *refusal, http.StatusBadRequest
	case notHeld:
		words := "You can only give permissions that you have. You do not have “" +
			strings.Join(titles(missing.Missing), "”, “") + "”."
		return membership.Refusal{Field: "permissions", Message: words}, http.StatusForbidden
	case errors.Is(err, membership.ErrMember):
		return membership.Refusal{Field: "email", Message: "A member has this address already."}, http.StatusConflict
	case errors.Is(err, membership.ErrTooManyInvited):
		full := "The workspace has too many open invitations. Withdraw some first."
		return membership.Refusal{Field: "email", Message: full}, http.StatusConflict
	}
	return membership.Refusal{}, 0
}

// limitWords says which limit was reached and when one more invitation can be sent, rounded up.
func limitWords(limited *membership.LimitError) string {
	wait := ui.Count(max(1, int((limited.Wait+time.Minute-1)/time.Minute)), "minute")
	if hours := int((limited.Wait + time.Hour - 1) / time.Hour); hours > 1 {
		wait = ui.Count(hours, "hour")
	}
	return limited.Text + " Try again in " + wait + "."
}

// showSent shows the link, only this time, if the inviter has to deliver it.
func (s *Settings) showSent(r *request, made membership.Sent) error {
	if s.Members.Mailed() {
		return r.done(nil, "We sent an invitation to "+made.Email+". Its link works for 7 days.")
	}
	return s.listMembers(r.withOutcome(outcome{Name: made.Email, Value: made.Link.Reveal()}))
}

// linkOnce says how to get the link of an invitation, if this deployment does not send it.
func (s *Settings) linkOnce() string {
	if s.Members.Mailed() {
		return ""
	}
	return " Its link was shown only once. To get a new link, choose “Send again”."
}

// renewInvitation takes id and seen.
func (s *Settings) renewInvitation(r *request) error {
	seen, _ := time.Parse(time.RFC3339Nano, r.form.Get("seen")) // the zero time, which no invitation has
	sent, err := s.Members.Renew(r.ctx(), r.actor(), r.id(), seen)
	refusal, status := r.refusedField(err)
	switch {
	case err == nil:
		return s.showSent(r, sent)
	case errors.Is(err, membership.ErrNoInvitation):
		return r.done(nil, "The invitation was already sent again, answered or withdrawn."+s.linkOnce())
	case status == http.StatusForbidden:
		return s.listMembers(r.refuse(status, "The invitation was not sent again. "+refusal.Message))
	case status == http.StatusTooManyRequests:
		return s.listMembers(r.refuse(status,
			"The invitation was not sent again, and its link still works. "+refusal.Message))
	}
	return err
}

// withdrawInvitation takes id.
func (s *Settings) withdrawInvitation(r *request) error {
	return r.done(s.Members.Withdraw(r.ctx(), r.actor(), r.id()), "The invitation was withdrawn.")
}
