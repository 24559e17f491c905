package settings

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A memberView is the page of one member.
type memberView struct {
	page
	Writes  bool
	Member  memberRow
	Choices perm.Set // permissions that the user may leave or give
	Chosen  perm.Set
	Seen    string     // the permissions that the page showed, as a scope
	Note    string     // the error of the permissions
	Asked   *askedView // the request that selected permissions, or nil
	Mails   bool       // the deployment sends mail
}

func (*memberView) Template() string { return "member" }

// An endView shows what ends with a membership, before it ends.
type endView struct {
	page
	Heading string
	Effects []string
	Action  string // local path of the form
	ID      string // of the member
	Button  string
	Back    string
}

func (*endView) Template() string { return "memberend" }

const noMember = "This person is no longer a member."

// lastHolder is the response to a change of the last person with a permission (contract, section 7: 409).
const lastHolder = "This is the last person with one of these permissions: Manage API access, See members, Manage " +
	"members. Give that permission to another member first. Nothing was changed."

// showMember shows a member. With asked, the permissions that the member asked for are selected.
func (s *Settings) showMember(r *request) error {
	if r.form.Get("asked") == "" {
		return s.memberPage(r, nil)
	}
	asked, err := s.askedBy(r, r.id().String())
	if err != nil {
		return err
	}
	return s.memberPage(r, asked)
}

// memberPage shows a member as stored, or as typed if the permissions were refused.
func (s *Settings) memberPage(r *request, asked *askedView) error {
	m, err := s.Store.WorkspaceMember(r.ctx(), r.here.Workspace.ID, r.id())
	if errors.Is(err, membership.ErrNoMember) {
		return r.done(noMember)
	}
	if err != nil {
		return err
	}
	view := &memberView{
		Writes:  r.here.Permissions.Has(perm.AccountWriteMembers),
		Member:  memberRow{m, m.UserID == r.user.User.ID},
		Choices: r.here.Permissions.Union(m.Permissions),
		Chosen:  m.Permissions,
		Seen:    m.Permissions.Scope(),
		Note:    r.problems.Of("permissions"),
		Mails:   s.Members.Mailed(),
	}
	view.Title = m.Name
	if view.Note != "" {
		view.Chosen = perm.FromStrings(r.form["permissions"])
		view.Seen = perm.ParseScope(r.form.Get("seen")).Scope()
	}
	if asked != nil && view.Writes && !m.Permissions.HasAll(asked.Permissions) {
		view.Asked, view.Chosen = asked, view.Chosen.Union(asked.Permissions.Intersect(view.Choices))
	}
	return r.show(view)
}

// setPermissions takes id, permissions and seen. It applies only to the permissions that the page showed.
func (s *Settings) setPermissions(r *request) error {
	wanted, err := membership.ParsePermissions(r.form["permissions"])
	var m membership.Member
	if err == nil {
		seen := perm.ParseScope(r.form.Get("seen"))
		m, err = s.Members.ChangePermissions(r.ctx(), r.actor(), r.id(), wanted, &seen)
	}
	refusal, status := refusedField(err)
	switch {
	case refusal.Field != "":
		r.refuse(status, "Nothing was changed.", permissionsProblem("permissions", refusal.Message))
	case errors.Is(err, membership.ErrChanged):
		r.refuse(http.StatusConflict,
			"The permissions were changed after you opened this page. Your changes were not saved.")
	case errors.Is(err, membership.ErrLastHolder):
		r.refuse(http.StatusConflict, lastHolder)
	case errors.Is(err, membership.ErrUnproven):
		r.refuse(http.StatusConflict,
			"You cannot add a permission while the e-mail address is not confirmed. Nothing was changed.")
	case err == nil && r.id() == r.user.User.ID && !wanted.Has(perm.AccountReadMembers):
		return r.doneAt(userSection.Path(), "Your permissions were saved.")
	default:
		saved := "The permissions of " + m.Name + " were saved."
		return r.outcome(err, saved, refusals{membership.ErrNoMember: noMember})
	}
	return s.memberPage(r, nil)
}

// removeMember takes id and confirm. It first shows what ends.
func (s *Settings) removeMember(r *request) error {
	m, err := s.Store.WorkspaceMember(r.ctx(), r.here.Workspace.ID, r.id())
	if err == nil && r.form.Get("confirm") == "yes" {
		var ended membership.Removal
		if ended, err = s.Members.Remove(r.ctx(), r.actor(), r.id()); err == nil {
			return s.removed(r, m, ended)
		}
	}
	if errors.Is(err, membership.ErrLastHolder) {
		return s.memberPage(r.refuse(http.StatusConflict, lastHolder), nil)
	}
	if err != nil {
		return r.outcome(err, "", refusals{membership.ErrNoMember: noMember})
	}
	return s.showEnd(r, r.here, m, &endView{
		Heading: "Remove " + m.Name + " from " + r.here.Workspace.Name + "?",
		Effects: []string{
			m.Name + " loses access to the workspace immediately. The account stays.",
			"Invitations that " + m.Name + " sent and that are still open are withdrawn.",
		},
		Action: membersSection.Path() + "/remove",
		ID:     r.id().String(),
		Button: "Remove " + m.Name,
		Back:   r.path(membersSection),
	})
}

func (s *Settings) removed(r *request, m membership.Member, ended membership.Removal) error {
	notice := m.Name + " was removed."
	if ends := ending(len(ended.Grants), ended.Tokens); ends != "" {
		notice += " This ended " + ends + "."
	}
	if ended.More {
		notice += " Other connections and tokens of " + m.Name + " no longer work either."
	}
	if m.UserID == r.user.User.ID {
		return r.doneAt(userSection.Path(), "You left "+r.here.Workspace.Name+".")
	}
	return r.done(notice)
}

// ending returns the connections and tokens that end, in words, or "" if there are none.
func ending(connections, tokens int) string {
	var ends []string
	if connections > 0 {
		ends = append(ends, count(connections, "connection"))
	}
	if tokens > 0 {
		ends = append(ends, count(tokens, "personal access token"))
	}
	return strings.Join(ends, " and ")
}

// showEnd shows what ends with a membership. The view has the first and the last of its effects; the last one applies
// to a member with open invitations.
func (s *Settings) showEnd(r *request, in workspace.Membership, m membership.Member, view *endView) error {
	invitations, err := s.Store.Invitations(r.ctx(), in.Workspace.ID)
	if err != nil {
		return err
	}
	sent := func(i membership.Invitation) bool { return i.InviterID == m.UserID && !i.Expired(s.Now()) }
	if !slices.ContainsFunc(invitations, sent) {
		view.Effects = view.Effects[:1]
	}
	if ends := ending(m.Connections, m.Tokens); ends != "" {
		view.Effects = slices.Insert(view.Effects, 1, "Ends: "+ends+".")
	}
	return r.show(view)
}

// leave takes tenant and confirm. Each member may leave, and first sees what ends.
func (s *Settings) leave(r *request) error {
	own, err := s.ownMembership(r)
	if err != nil {
		return err
	}
	name := own.Workspace.Name
	if r.form.Get("confirm") == "yes" {
		actor := r.actor()
		actor.WorkspaceID = own.Workspace.ID
		_, err = s.Members.Leave(r.ctx(), actor)
		if errors.Is(err, membership.ErrLastHolder) {
			s.Pages.ShowError(r.w, r.http, cannotLeave(name))
			return nil
		}
		if err != nil {
			return err
		}
		return r.doneAt(userSection.Path(), "You left "+name+".")
	}
	if r.user.SecondFactor.MustConfirm() {
		return session.ErrSecondFactor
	}
	m, err := s.Store.WorkspaceMember(r.ctx(), own.Workspace.ID, r.user.User.ID)
	if err != nil {
		return err
	}
	r.section = ui.Section{Name: userSection.Name, Title: "Leave " + name}
	view := &endView{
		Heading: "Leave " + name + "?",
		Effects: []string{
			"You lose access immediately. To come back, you need a new invitation.",
			"Invitations that you sent and that are still open are withdrawn.",
		},
		Action: membersSection.Path() + "/leave",
		Button: "Leave this workspace",
		Back:   userSection.Path(),
	}
	view.Workspace = ui.Workspace{ID: own.Workspace.ID.String(), Name: name}
	return s.showEnd(r, own, m, view)
}

// cannotLeave is the response to the last person with a permission of account (contract, section 7: 409).
func cannotLeave(workspace string) *ui.Message {
	return &ui.Message{
		Status:  http.StatusConflict,
		Heading: "You cannot leave yet",
		Text: "You are the last person in " + workspace + " with one of these permissions: Manage API access, See " +
			"members, Manage members.",
		Next: "Give that permission to another member before you leave.",
	}
}

// ownMembership returns the user's membership of the form's workspace. If there is none, it redirects and returns
// errAnswered.
func (s *Settings) ownMembership(r *request) (workspace.Membership, error) {
	memberships, err := r.workspaces()
	if err != nil {
		return workspace.Membership{}, err
	}
	for _, m := range memberships {
		if m.Workspace.ID.String() == r.form.Get("tenant") {
			return m, nil
		}
	}
	return workspace.Membership{}, r.gone(userSection.Path(), "You are not a member of this workspace.")
}
