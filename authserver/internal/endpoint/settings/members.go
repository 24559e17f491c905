package settings

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A membersView is Settings → Members, for one workspace.
type membersView struct {
	page
	Writes      bool // the user may change members
	Members     []memberRow
	List        listPage // of the members
	Invitations []invitationRow
	Invited     listPage
	Sent        *sentInvitation

	SecondFactor secondFactorForm
}

func (*membersView) Template() string { return "members" }

// A secondFactorForm switches whether members need a second factor.
type secondFactorForm struct {
	Required bool
	Without  int  // number of members without a second factor
	May      bool // the user has used a second factor, and may switch it on
}

// A memberRow is a member in the list.
type memberRow struct {
	membership.Member
	You bool
}

// An invitationRow is an invitation in the list.
type invitationRow struct {
	membership.Invitation
	Over bool // it expired
}

// Seen is what the form sends back, so that it renews the invitation once.
func (i invitationRow) Seen() string { return i.Expires.UTC().Format(time.RFC3339Nano) }

// A sentInvitation is an invitation with its link, which is shown only once.
type sentInvitation struct{ Email, Link string }

// showMembers shows the list. The mails about requests for access link to it with asked.
func (s *Settings) showMembers(r *request) error {
	if asked, err := identity.Parse(r.form.Get("asked")); err == nil {
		redirect(r.w, r.path(inviteSection)+"&asked="+asked.String())
		return nil
	}
	return s.listMembers(r, nil)
}

// invitationsShown is how many invitations a page shows.
const invitationsShown = 10

// listMembers shows the members, and an invitation that was just sent.
func (s *Settings) listMembers(r *request, sent *sentInvitation) error {
	all, err := s.Store.ListedMembers(r.ctx(), r.here.Workspace.ID)
	if err != nil {
		return err
	}
	listed, list := listing[membership.ListedMember]{
		Of:   "members",
		Path: r.path(membersSection),
		Matches: func(m membership.ListedMember, words string) bool {
			return contains(words, m.Name, m.Email, strings.Join(m.Permissions.Strings(), " "))
		},
	}.Select(r.query(), all)
	members, err := s.Store.WorkspaceMembers(r.ctx(), r.here.Workspace.ID, membership.UserIDs(listed))
	if err != nil {
		return err
	}
	invitations, err := s.Store.Invitations(r.ctx(), r.here.Workspace.ID)
	if err != nil {
		return err
	}
	factor := secondFactorForm{Required: r.here.Workspace.SecondFactor, May: r.user.SecondFactor.Satisfies()}
	for _, m := range all {
		if !m.SecondFactor && !m.Disabled {
			factor.Without++
		}
	}
	view := &membersView{List: list, Writes: r.here.Permissions.Has(perm.AccountWriteMembers), Sent: sent}
	view.SecondFactor = factor
	for _, m := range members {
		view.Members = append(view.Members, memberRow{m, m.UserID == r.user.User.ID})
	}
	for _, i := range invitations {
		view.Invitations = append(view.Invitations, invitationRow{i, i.Expired(s.Now())})
	}
	view.Invitations, view.Invited = listing[invitationRow]{
		Of:        "invitations",
		Path:      r.path(membersSection),
		Parameter: "invitations",
		Size:      invitationsShown,
	}.Select(r.query(), view.Invitations)
	return r.show(view)
}

// changesMembers returns the handler of a form that only a user who may change the members of the workspace may send.
func (s *Settings) changesMembers(act handler) handler {
	return func(r *request) error {
		if r.here.Permissions.Has(perm.AccountWriteMembers) {
			return act(r)
		}
		err := r.refuseWithout("You can see the members of this workspace, but not change them. Nothing was changed.")
		if err != nil {
			return err
		}
		return s.listMembers(r, nil)
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
		r.refuse(http.StatusBadRequest, "Choose whether members need a second factor. Nothing was changed.")
		return s.listMembers(r, nil)
	}
	event := r.eventHere(audit.SecondFactorChanged, "tenant:"+r.here.Workspace.ID.String(),
		map[string]any{"state": state}, perm.AccountWriteMembers)
	err := s.Store.RequireSecondFactor(r.ctx(), r.here.Workspace.ID, state == "on", event)
	if errors.Is(err, session.ErrSecondFactor) {
		r.refuse(http.StatusForbidden,
			"Nothing was changed. You must sign in with a second factor yourself before you require it of others.")
		return s.listMembers(r, nil)
	}
	return r.outcome(err, notice, nil)
}

// An askedView is a request for access whose values a form contains.
type askedView struct {
	membership.SentRequest
	NotHeld perm.Set // requested permissions that the user of the page cannot give
}

// askedBy reads the access request of the user id in the workspace. It returns nil if there is none, or if the user of
// the page cannot change members. The link in the administrators' mail contains the id.
func (s *Settings) askedBy(r *request, id string) (*askedView, error) {
	user, err := identity.Parse(id)
	if err != nil || !r.here.Permissions.Has(perm.AccountWriteMembers) {
		return nil, nil
	}
	asked, err := s.Store.LastAccessRequest(r.ctx(), r.here.Workspace.ID, user)
	if asked == nil || err != nil {
		return nil, err
	}
	return &askedView{*asked, asked.Permissions.Without(r.here.Permissions)}, nil
}
