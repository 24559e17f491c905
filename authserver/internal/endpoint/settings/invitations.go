package settings

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

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
	Gone    bool       // the link led to a request that is no longer open
	Invited []string   // addresses with open invitations, which the form replaces
}

// Most is how many people can be invited at once.
func (*inviteView) Most() int { return membership.MaxInvited }

// showInvite shows the form, filled in for the user who asked for access, unless that user was invited since.
func (s *Settings) showInvite(r *request) error {
	asked, err := s.askedBy(r, r.form.Get("asked"))
	if err != nil {
		return err
	}
	view := &inviteView{Gone: asked == nil && r.form.Get("asked") != ""}
	if asked == nil {
		return s.inviteForm(r, view)
	}
	switch _, err = s.Store.WorkspaceMember(r.ctx(), r.here.Workspace.ID, asked.UserID); {
	case err == nil: // a member since
		view.Gone = true
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

// invite takes email, which can have several addresses, and permissions or preset; replace has the addresses whose open
// invitations the new ones replace.
func (s *Settings) invite(r *request) error {
	r.chooseRole(r.here.Permissions)
	r.form.Set("email", strings.TrimSpace(strings.Join(r.form["email"], "\n")))
	typed := &inviteView{page: page{Form: r.form}}
	// Both fields are checked here, so that the page shows both errors.
	emails, noEmail := membership.ParseEmails(r.form.Get("email"))
	permissions, noPermissions := membership.ParsePermissions(r.form["permissions"])
	for _, err := range []error{noEmail, noPermissions} {
		if refusal, invalid := errors.AsType[*membership.Refusal](err); invalid {
			r.reject("invite "+refusal.Field, refusal.Message)
		}
	}
	notSent := "The invitation was not sent."
	if r.several() {
		notSent = "No invitation was sent."
	}
	if r.rejected(notSent) {
		return s.inviteForm(r, typed)
	}
	sent, err := s.Members.InviteAll(r.ctx(), r.actor(), membership.Batch{
		Emails:      emails,
		Permissions: permissions,
		Replace:     strings.Fields(strings.Join(r.form["replace"], " ")),
		Form:        r.key.Makes, // which may be sent again for other addresses
	})
	if err == nil {
		return s.showSent(r, sent)
	}
	if errors.Is(err, membership.ErrSent) {
		notice := "The invitation was already sent."
		if len(emails) > 1 {
			notice = "The invitations were already sent."
		}
		return r.done(nil, notice+s.linkOnce())
	}
	if taken, is := errors.AsType[*membership.Taken](err); is && len(taken.Members) == 0 {
		typed.Invited = append(taken.Invited, strings.Fields(r.form.Get("replace"))...)
	}
	refusal, status := r.refusedField(err)
	if refusal.Field == "" {
		return err
	}
	return s.inviteForm(r.refuse(status, notSent, problemOf("invite "+refusal.Field, refusal.Message)), typed)
}

// several reports whether more than one address was typed.
func (r *request) several() bool {
	typed := r.form.Get("email")
	return strings.ContainsAny(typed, "\n,;،，؛；") || strings.Count(typed, "@") > 1
}

// refusedField returns the field that an error of an invitation concerns, with the status, or an empty refusal. It sets
// the headers of a reached limit.
func (r *request) refusedField(err error) (membership.Refusal, int) {
	refusal, invalid := errors.AsType[*membership.Refusal](err)
	missing, notHeld := errors.AsType[*membership.NotHeld](err)
	limited, tooMany := errors.AsType[*membership.LimitError](err)
	taken, isTaken := errors.AsType[*membership.Taken](err)
	switch {
	case tooMany:
		web.SetRateLimited(r.w.Header(), limited.Wait, limited.RateLimit())
		words := limitWords(limited)
		if r.several() {
			words = "The limit was reached at " + limited.Email + ". " + words
		}
		return membership.Refusal{Field: "email", Message: words}, http.StatusTooManyRequests
	case invalid:
		return *refusal, http.StatusBadRequest
	case notHeld:
		words := "You can only give permissions that you have. You do not have “" +
			strings.Join(titles(missing.Missing), "”, “") + "”."
		return membership.Refusal{Field: "permissions", Message: words}, http.StatusForbidden
	case isTaken:
		return membership.Refusal{Field: "email", Message: takenWords(taken, r.several())}, http.StatusConflict
	case errors.Is(err, membership.ErrTooManyInvited):
		full := "The workspace has too many open invitations. Withdraw some first."
		return membership.Refusal{Field: "email", Message: full}, http.StatusConflict
	}
	return membership.Refusal{}, 0
}

// takenWords says why addresses cannot be invited, and names them if several were typed.
func takenWords(taken *membership.Taken, several bool) (words string) {
	switch {
	case !several && len(taken.Members) > 0:
		return "A member has this address already."
	case !several:
		return "This address has an open invitation. If you send a new one, the earlier link stops working."
	case len(taken.Members) > 0:
		words = "Already members: " + strings.Join(taken.Members, ", ") + ". Remove them from the list. "
	}
	if len(taken.Invited) > 0 {
		words += "Already invited: " + strings.Join(taken.Invited, ", ") + ". "
	}
	if len(taken.Members) == 0 {
		words += "If you send new invitations, the earlier links stop working."
	}
	return strings.TrimSpace(words)
}

// limitWords says which limit was reached and when one more invitation can be sent, rounded up.
func limitWords(limited *membership.LimitError) string {
	wait := ui.Count(max(1, int((limited.Wait+time.Minute-1)/time.Minute)), "minute")
	if hours := int((limited.Wait + time.Hour - 1) / time.Hour); hours > 1 {
		wait = ui.Count(hours, "hour")
	}
	return limited.Text + " Try again in " + wait + "."
}

// showSent shows the links, only this time, if the inviter has to deliver them.
func (s *Settings) showSent(r *request, sent []membership.Sent) error {
	switch {
	case !s.Members.Mailed():
		r.sent = sent
		return s.listMembers(r)
	case len(sent) == 1:
		return r.done(nil, "We sent an invitation to "+sent[0].Email+". Its link works for 7 days.")
	}
	return r.done(nil, "We sent invitations to "+strconv.Itoa(len(sent))+" people. Their links work for 7 days.")
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
		return s.showSent(r, []membership.Sent{sent})
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
