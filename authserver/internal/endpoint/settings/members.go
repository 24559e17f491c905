package settings

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A membersView is Settings → Members, for one workspace.
type membersView struct {
	page
	Members     []membership.Member
	List        listPage // of the members
	Invitations []membership.Invitation
	Invited     listPage
	Now         time.Time // at which an invitation may have expired
	Without     int       // number of members without one
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

// invitationsShown is how many invitations a page shows.
const invitationsShown = 10

// listMembers shows the members, and an invitation that was just sent.
func (s *Settings) listMembers(r *request) error {
	all := read(r, s.Store.ListedMembers, r.here.Workspace.ID)
	invitations := read(r, s.Store.Invitations, r.here.Workspace.ID)
	if r.failed != nil {
		return r.failed
	}
	listed, list := listing[membership.ListedMember]{
		Of: "members",
		Text: func(m membership.ListedMember) []string {
			return []string{m.Name, m.Email, strings.Join(m.Permissions.Strings(), " ")}
		},
	}.Select(r, all)
	view := &membersView{List: list, Now: s.Now(), May: r.user.SecondFactor.Satisfies()}
	view.Members, r.failed = s.Store.WorkspaceMembers(r.ctx(), r.here.Workspace.ID, membership.UserIDs(listed))
	for _, m := range all {
		if !m.SecondFactor && !m.Disabled {
			view.Without++
		}
	}
	open := listing[membership.Invitation]{Of: "invitations", Parameter: "invitations", Size: invitationsShown}
	view.Invitations, view.Invited = open.Select(r, invitations)
	return r.show("members", view)
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
	Mails   bool       // the deployment sends mail
}

// An endView shows what ends with a membership, before it ends.
type endView struct {
	page
	Member  membership.Member
	Leaves  bool   // the user leaves; otherwise another member is removed
	Ends    string // connections and tokens that end, or ""
	Invited bool   // the member sent invitations that are still open
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
	view := &memberView{
		Member:  m,
		Choices: r.here.Permissions.Union(m.Permissions),
		Mails:   s.Members.Mailed(),
	}
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

// ending returns the connections and tokens that end, in words, or "" if there are none.
func ending(connections, tokens int) string {
	var ends []string
	if connections > 0 {
		ends = append(ends, ui.Count(connections, "connection"))
	}
	if tokens > 0 {
		ends = append(ends, ui.Count(tokens, "personal access token"))
	}
	return strings.Join(ends, " and ")
}

// showEnd shows what ends with a membership of a workspace.
func (s *Settings) showEnd(r *request, view *endView, in workspace.Membership) error {
	open := read(r, s.Store.Invitations, in.Workspace.ID)
	view.Invited = slices.ContainsFunc(open, func(i membership.Invitation) bool {
		return i.InviterID == view.Member.UserID && !i.Expired(s.Now())
	})
	view.Ends, view.Membership = ending(view.Member.Connections, view.Member.Tokens), in
	return r.show("memberend", view)
}

const notMember = "You are not a member of this workspace."

// leave takes tenant and confirm. Each member may leave, and first sees what ends.
func (s *Settings) leave(r *request) error {
	r.back = userSection.Path()
	own, member := r.membership(r.form.Get("tenant"))
	if !member {
		return r.done(nil, notMember)
	}
	name := own.Workspace.Name
	if r.form.Get("confirm") == "yes" {
		actor := r.actor()
		actor.WorkspaceID = own.Workspace.ID
		_, err := s.Members.Leave(r.ctx(), actor)
		if errors.Is(err, membership.ErrLastHolder) {
			s.Pages.ShowError(r.w, r.http, ui.MessageOf("last holder", name)) // contract, section 7: 409
			return nil
		}
		if errors.Is(err, membership.ErrNoMember) {
			return r.done(nil, notMember)
		}
		return r.done(err, "You left "+name+".")
	}
	if r.user.SecondFactor.MustConfirm() {
		return session.ErrSecondFactor
	}
	m, err := s.Store.WorkspaceMember(r.ctx(), own.Workspace.ID, r.user.User.ID)
	if err != nil {
		return err
	}
	r.section = ui.Section{Name: userSection.Name, Title: "Leave " + name}
	return s.showEnd(r, &endView{Member: m, Leaves: true}, own)
}
