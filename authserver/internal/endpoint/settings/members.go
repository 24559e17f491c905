package settings

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A membersView is Settings → Members, for one workspace.
type membersView struct {
	listView[membership.Member]
	Invitations []membership.Invitation
	Invited     listPage
	Now         time.Time // tells which invitations have expired
	Without     int       // number of members without a second factor
	May         bool      // the user has used a second factor, and may require it
}

// Seen is what the form of an invitation sends back, so that it renews the invitation once.
func (*membersView) Seen(i membership.Invitation) string {
	return i.Expires.UTC().Format(time.RFC3339Nano)
}

// showMembers shows the list. The mails about requests for access link to it with asked.
func (s *Settings) showMembers(r *request) error {
	if asked, err := web.ParseID(r.form.Get("asked")); err == nil {
		ui.Redirect(r.w, r.path(inviteSection)+"&asked="+asked.String())
		return nil
	}
	return s.listMembers(r)
}

// listedByName is the number of members up to which they are listed by name. In a larger workspace the latest come
// first, since all of them would have to be read to sort them.
const listedByName = 1000

// listMembers shows the members, and an invitation that was just sent.
func (s *Settings) listMembers(r *request) error {
	invitations := read(r, s.Store.Invitations, r.here.Workspace.ID)
	all, err := s.Store.ListedMembers(r.ctx(), r.here.Workspace.ID, membership.MemberPage{Limit: listedByName + 1})
	if r.failed = cmp.Or(r.failed, err); r.failed != nil {
		return r.failed
	}
	view := &membersView{Now: s.Now(), May: r.user.SecondFactor.Satisfies()}
	for _, m := range all[:min(len(all), listedByName)] {
		if !m.SecondFactor && !m.Disabled {
			view.Without++
		}
	}
	var listed []membership.ListedMember
	if len(all) > listedByName {
		listed, view.List = s.latestMembers(r)
	} else {
		slices.SortFunc(all, func(a, b membership.ListedMember) int {
			names := strings.Compare(spelling.Fold(a.Name), spelling.Fold(b.Name))
			return cmp.Or(names, strings.Compare(a.Email, b.Email))
		})
		listed, view.List = listing[membership.ListedMember]{
			Of: "members",
			Text: func(m membership.ListedMember) []string {
				return []string{m.Name, m.Email, strings.Join(m.Permissions.Strings(), " ")}
			},
		}.Select(r, all)
	}
	if r.failed == nil {
		view.Rows, r.failed = s.Store.WorkspaceMembers(r.ctx(), r.here.Workspace.ID, membership.UserIDs(listed))
	}
	open := listing[membership.Invitation]{Of: "invitations", Parameter: "invitations", Size: shortPage}
	view.Invitations, view.Invited = open.Select(r, invitations)
	return r.show("members", view)
}

// latestMembers returns the page of a large workspace that the URL selects.
func (s *Settings) latestMembers(r *request) (listed []membership.ListedMember, list listPage) {
	from := readMark(r.query().Get("before"))
	list = listPage{Of: "members", All: listedByName, Many: true, Words: readWords(r.query(), "q")}
	page := membership.MemberPage{Before: from.At, UserID: from.ID, Words: list.Words, Limit: pageSize + 1}
	read := func() (err error) {
		listed, err = s.Store.ListedMembers(r.ctx(), r.here.Workspace.ID, page)
		return err
	}
	if list.Words == "" {
		r.failed = read()
	} else if r.failed = r.search(read); errors.Is(r.failed, context.DeadlineExceeded) { // it may read every member
		r.showError(ui.MessageOf("search too long", ""))
		r.failed = errAnswered
	}
	if len(listed) > pageSize {
		listed = listed[:pageSize]
		last := listed[pageSize-1]
		list.Later = r.path(r.section) + "&before=" + writeMark(audit.Cursor{At: last.Since, ID: last.UserID})
		if list.Words != "" {
			list.Later += "&q=" + url.QueryEscape(list.Words)
		}
	}
	return listed, list
}

// changesMembers returns the handler of a form that only a user who may change the members of the workspace may send.
func (s *Settings) changesMembers(act handler) handler {
	return func(r *request) error {
		if r.here.Permissions.Has(perm.AccountWriteMembers) {
			return act(r)
		}
		return s.listMembers(r.refuseWithout(
			"You can see the members of this workspace, but not change them. Nothing was changed."))
	}
}

// actor returns the user as one who changes the members of the page's workspace.
func (r *request) actor() membership.Actor {
	return membership.Actor{
		UserID:        r.user.User.ID,
		WorkspaceID:   r.here.Workspace.ID,
		Permissions:   r.here.Permissions,
		RequestID:     web.RequestID(r.ctx()),
		Authorization: audit.Authorization{UserID: r.user.User.ID, SignInID: r.user.SignInID},
	}
}

// setSecondFactor takes state: on or off. Only a user who has used a second factor at this sign-in can switch it on, so
// that users do not lock themselves out.
func (s *Settings) setSecondFactor(r *request) error {
	state, notice := r.form.Get("state"), "Members of "+r.here.Workspace.Name+" need a second factor now."
	switch state {
	case "on":
	case "off":
		notice = "Members of " + r.here.Workspace.Name + " no longer need a second factor."
	default:
		return s.listMembers(r.refuse(http.StatusBadRequest,
			"Choose whether members need a second factor. Nothing was changed."))
	}
	event := r.eventHere(audit.SecondFactorChanged, "tenant:"+r.here.Workspace.ID.String(),
		map[string]any{"state": state}, perm.AccountWriteMembers)
	err := s.Store.RequireSecondFactor(r.ctx(), r.here.Workspace.ID, state == "on", event)
	if errors.Is(err, session.ErrSecondFactor) {
		return s.listMembers(r.refuse(http.StatusForbidden,
			"Nothing was changed. You must sign in with a second factor yourself before you require it of others."))
	}
	return r.done(err, notice)
}

// An askedView is a request for access whose values a form contains.
type askedView struct {
	membership.SentRequest
	NotHeld perm.Set // requested permissions that the user of the page cannot give
}

// askedBy reads the access request of the user id in the workspace. It returns nil if there is none, or if the user of
// the page cannot change members. The link in the administrators' mail contains the id.
func (s *Settings) askedBy(r *request, id string) (*askedView, error) {
	user, err := web.ParseID(id)
	if err != nil || !r.here.Permissions.Has(perm.AccountWriteMembers) {
		return nil, nil
	}
	asked, err := s.Store.LastAccessRequest(r.ctx(), r.here.Workspace.ID, user)
	if asked == nil || err != nil {
		return nil, err
	}
	return &askedView{*asked, asked.Permissions.Without(r.here.Permissions)}, nil
}

// A memberView is the page of one member.
type memberView struct {
	page
	Member  membership.Member
	Choices perm.Set   // permissions that the user may leave or give
	Asked   *askedView // the request that selected permissions, or nil
}

// lastHolder is the response to a change of the last person with a permission (contract, section 7: 409).
const lastHolder = "This is the last person with one of these permissions: Manage API access, See members, Manage " +
	"members. Give that permission to another member first. Nothing was changed."

// showMember shows a member as stored, or as typed if the permissions were refused. With asked in the URL, the
// permissions that the member asked for are selected.
func (s *Settings) showMember(r *request) (err error) {
	var asked *askedView
	if r.http.Method != http.MethodPost && r.form.Get("asked") != "" {
		if asked, err = s.askedBy(r, r.id().String()); err != nil {
			return err
		}
	}
	m, err := s.Store.WorkspaceMember(r.ctx(), r.here.Workspace.ID, r.id())
	if err != nil {
		return r.done(err, "")
	}
	view := &memberView{Member: m, Choices: r.here.Permissions.Union(m.Permissions)}
	view.Title = m.Name
	chosen, seen := m.Permissions, m.Permissions // seen are those that the page showed
	if r.problems.Of("permissions") != "" {
		chosen, seen = perm.FromStrings(r.form["permissions"]), perm.ParseScope(r.form.Get("seen"))
	}
	if asked != nil && !m.Permissions.HasAll(asked.Permissions) {
		view.Asked, chosen = asked, chosen.Union(asked.Permissions.Intersect(view.Choices))
	}
	view.Form = url.Values{"permissions": chosen.Strings(), "seen": {seen.Scope()}}
	return r.show("member", view)
}

// setPermissions takes id, permissions and seen. It applies only to the permissions that the page showed.
func (s *Settings) setPermissions(r *request) error {
	wanted, err := membership.ParsePermissions(r.form["permissions"])
	var m membership.Member
	if err == nil {
		seen := perm.ParseScope(r.form.Get("seen"))
		m, err = s.Members.ChangePermissions(r.ctx(), r.actor(), r.id(), wanted, &seen)
	}
	refusal, status := r.refusedField(err)
	switch {
	case refusal.Field != "":
		r.refuse(status, "Nothing was changed.", problemOf("member permissions", refusal.Message))
	case errors.Is(err, membership.ErrChanged):
		r.refuse(http.StatusConflict,
			"The permissions were changed after you opened this page. Your changes were not saved.")
	case errors.Is(err, membership.ErrLastHolder):
		r.refuse(http.StatusConflict, lastHolder)
	case errors.Is(err, membership.ErrUnproven):
		r.refuse(http.StatusConflict,
			"You cannot add a permission while the e-mail address is not confirmed. Nothing was changed.")
	case err == nil && r.id() == r.user.User.ID && !wanted.Has(perm.AccountReadMembers):
		r.back = userSection.Path()
		return r.done(nil, "Your permissions were saved.")
	default:
		return r.done(err, "The permissions of "+m.Name+" were saved.")
	}
	return s.showMember(r)
}

// removeMember takes id and confirm. It first shows what ends.
func (s *Settings) removeMember(r *request) error {
	m, err := s.Store.WorkspaceMember(r.ctx(), r.here.Workspace.ID, r.id())
	if err == nil && r.form.Get("confirm") == "yes" {
		var ended membership.Removal
		if ended, err = s.Members.Remove(r.ctx(), r.actor(), r.id()); err == nil {
			return r.removed(m, ended)
		}
	}
	if errors.Is(err, membership.ErrLastHolder) {
		return s.showMember(r.refuse(http.StatusConflict, lastHolder))
	}
	if err != nil {
		return r.done(err, "")
	}
	return s.showEnd(r, &endView{Member: m}, r.here)
}

func (r *request) removed(m membership.Member, ended membership.Removal) error {
	notice := m.Name + " was removed."
	if ends := ending(len(ended.Grants), ended.Tokens); ends != "" {
		notice += " This ended " + ends + "."
	}
	if ended.More {
		notice += " Other connections and tokens of " + m.Name + " no longer work either."
	}
	if m.UserID == r.user.User.ID {
		r.back, notice = userSection.Path(), "You left "+r.here.Workspace.Name+"."
	}
	return r.done(nil, notice)
}

// An inviteView is the page with the form for an invitation.
type inviteView struct {
	page
	Presets []membership.Preset
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
	r.section = inviteSection
	for _, preset := range membership.Presets() {
		if r.here.Permissions.HasAll(preset.Permissions) {
			view.Presets = append(view.Presets, preset)
		}
	}
	return r.show("invite", view)
}

// invite takes email and permissions; replace is the address whose open invitation the new one replaces. With preset,
// it only fills the form with the preset's permissions.
func (s *Settings) invite(r *request) error {
	email, permissions := strings.TrimSpace(r.form.Get("email")), r.form["permissions"]
	typed := &inviteView{page: page{Form: r.form}}
	if r.form.Get("preset") != "" {
		for _, preset := range membership.Presets() {
			if preset.Name == r.form.Get("preset") {
				r.form["permissions"] = preset.Permissions.Strings()
			}
		}
		return s.inviteForm(r, typed)
	}
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
