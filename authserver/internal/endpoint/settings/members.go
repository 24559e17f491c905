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
	Sent        []membership.Sent // just now, with links that the page shows once
	Now         time.Time         // tells which invitations have expired
	Without     int               // number of members without a second factor
	May         bool              // the user has used a second factor, and may require it
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

// listMembers shows the members, and invitations that were just sent.
func (s *Settings) listMembers(r *request) error {
	invitations := read(r, s.Store.Invitations, r.here.Workspace.ID)
	all, err := s.Store.ListedMembers(r.ctx(), r.here.Workspace.ID, membership.MemberPage{Limit: listedByName + 1})
	if r.failed = cmp.Or(r.failed, err); r.failed != nil {
		return r.failed
	}
	view := &membersView{Now: s.Now(), Sent: r.sent, May: r.user.SecondFactor.Satisfies()}
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

// A role is a preset of the form with permissions.
type role struct {
	membership.Preset
	Chosen bool
}

// Roles returns the roles that a form offers for the permissions of within, the last of which is Custom, or none if
// there is only that one.
func (p *page) Roles(within perm.Set) (roles []role) {
	chosen := p.Chosen()
	is := membership.PresetOf(chosen, within).Name
	for _, preset := range membership.Presets(within) {
		roles = append(roles, role{preset, preset.Name == is})
	}
	if len(roles) == 0 {
		return nil
	}
	custom := membership.Preset{
		Name:     membership.Custom,
		Title:    "Custom",
		Sentence: "What you tick below, and nothing else.",
	}
	return append(roles, role{custom, len(chosen) > 0 && is == membership.Custom})
}

// chooseRole gives the form the permissions of the preset that was chosen. The boxes count instead if it is the one
// that the page showed: without scripts, a box that was ticked since does not change the role.
func (r *request) chooseRole(within perm.Set) {
	chosen := r.form.Get("preset")
	if chosen == "" || chosen == membership.Custom || chosen == r.form.Get("shown") {
		return
	}
	r.form["permissions"] = []string{chosen} // which is unknown, unless it is one of these
	for _, preset := range membership.Presets(within) {
		if preset.Name == chosen {
			r.form["permissions"] = preset.Permissions.Strings()
		}
	}
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

// setPermissions takes id, permissions or preset, and seen. It applies only to the permissions that the page showed.
func (s *Settings) setPermissions(r *request) error {
	r.chooseRole(r.here.Permissions.Union(perm.ParseScope(r.form.Get("seen"))))
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
