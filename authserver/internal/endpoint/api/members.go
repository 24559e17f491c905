package api

import (
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/shared/rest"
)

// listMembers lists the members by name.
func (r *request) listMembers() error {
	all, err := r.Store.ListedMembers(r.http.Context(), r.by.WorkspaceID)
	if err != nil {
		return err
	}
	return rest.Collection[membership.ListedMember, memberBody]{
		Name: "members",
		Key: func(m membership.ListedMember) string {
			return strings.ToLower(m.Name) + "\x00" + m.Email + "\x00" + m.UserID.String()
		},
		Show: func(page []membership.ListedMember) ([]memberBody, error) {
			members, err := r.Store.WorkspaceMembers(r.http.Context(), r.by.WorkspaceID, membership.UserIDs(page))
			if err != nil {
				return nil, err
			}
			return rest.Each(showMember)(members)
		},
	}.Write(r.w, r.http, r.Cursors, r.by.WorkspaceID, all)
}

func (r *request) changeMember() (rest.Answer, error) {
	user, err := r.id("userId", membership.ErrNoMember)
	if err != nil {
		return rest.Answer{}, err
	}
	var body struct {
		Permissions []string `json:"permissions"`
	}
	if err := rest.ReadJSON(r.w, r.http, &body); err != nil {
		return rest.Answer{}, err
	}
	permissions, err := membership.ParsePermissions(body.Permissions)
	if err != nil {
		return rest.Answer{}, err
	}
	member, err := r.Members.ChangePermissions(r.http.Context(), r.by, user, permissions, nil)
	if err != nil {
		return rest.Answer{}, err
	}
	return rest.JSONLine(http.StatusOK, showMember(member))
}

func (r *request) removeMember() (rest.Answer, error) {
	user, err := r.id("userId", membership.ErrNoMember)
	if err == nil {
		_, err = r.Members.Remove(r.http.Context(), r.by, user)
	}
	return rest.Answer{Status: http.StatusNoContent}, err
}

// openInvitations is the list of a workspace's open invitations, newest first.
var openInvitations = rest.Collection[membership.Invitation, invitationBody]{
	Name:    "invitations",
	Omitted: []string{"url"},
	Key:     func(i membership.Invitation) string { return rest.NewestFirst(i.Created, i.ID) },
	Show:    rest.Each(showInvitation),
}

func (r *request) listInvitations() error {
	invitations, err := r.Store.Invitations(r.http.Context(), r.by.WorkspaceID)
	if err != nil {
		return err
	}
	return openInvitations.Write(r.w, r.http, r.Cursors, r.by.WorkspaceID, invitations)
}

func (r *request) invite() (rest.Answer, error) {
	var body struct {
		Email       string   `json:"email"`
		Permissions []string `json:"permissions"`
	}
	if err := rest.ReadJSON(r.w, r.http, &body); err != nil {
		return rest.Answer{}, err
	}
	sent, err := r.Members.Invite(r.http.Context(), r.by, body.Email, body.Permissions)
	if err != nil {
		return rest.Answer{}, err
	}
	shown := showInvitation(sent.Invitation)
	if !r.Members.Mailed() {
		shown.URL = sent.Link.Reveal()
	}
	answer, err := rest.JSONLine(http.StatusCreated, shown)
	answer.Needs, answer.Secret = sent.Invitation.Permissions, shown.URL != ""
	answer.Location = r.http.URL.Path + "/" + shown.ID
	return answer, err
}

func (r *request) withdraw() (rest.Answer, error) {
	id, err := r.id("invitationId", membership.ErrNoInvitation)
	if err == nil {
		err = r.Members.Withdraw(r.http.Context(), r.by, id)
	}
	return rest.Answer{Status: http.StatusNoContent}, err
}

// A memberBody is the JSON of a member.
type memberBody struct {
	UserID      string     `json:"userId"`
	Name        string     `json:"name"`
	Email       string     `json:"email"`
	Permissions []string   `json:"permissions"`
	Disabled    bool       `json:"disabled"`
	Connections int        `json:"connections"`
	Tokens      int        `json:"tokens"`
	CreatedAt   rest.Time  `json:"createdAt"`
	LastSeenAt  *rest.Time `json:"lastSeenAt"`
}

func showMember(m membership.Member) memberBody {
	return memberBody{
		UserID:      m.UserID.String(),
		Name:        m.Name,
		Email:       m.Email,
		Permissions: m.Permissions.Strings(),
		Disabled:    m.Disabled,
		Connections: m.Connections,
		Tokens:      m.Tokens,
		CreatedAt:   rest.Time(m.Since),
		LastSeenAt:  (*rest.Time)(m.LastSeen),
	}
}

// An invitationBody is the JSON of an invitation. It has the link only in the response to the call that created it.
type invitationBody struct {
	ID          string    `json:"id"`
	Email       string    `json:"email"`
	Permissions []string  `json:"permissions"`
	InvitedBy   string    `json:"invitedBy"`
	CreatedAt   rest.Time `json:"createdAt"`
	ExpiresAt   rest.Time `json:"expiresAt"`
	URL         string    `json:"url,omitempty"`
}

func showInvitation(i membership.Invitation) invitationBody {
	return invitationBody{
		ID:          i.ID.String(),
		Email:       i.Email,
		Permissions: i.Permissions.Strings(),
		InvitedBy:   i.InviterID.String(),
		CreatedAt:   rest.Time(i.Created),
		ExpiresAt:   rest.Time(i.Expires),
	}
}
