package membership

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Members stores memberships. Its errors are those of Errors and audit.ErrNotAuthorized, or wrap store.ErrUnavailable.
// Each change checks the event's authorization in its transaction.
type Members interface {
	WorkspaceMember(ctx context.Context, workspaceID, user uuid.UUID) (Member, error)
	// ChangePermissions replaces a member's permissions, and returns the former ones. Each added permission must be one
	// of those that the event's authorization names (M1), else ErrChanged. It returns ErrUnproven (M6).
	ChangePermissions(ctx context.Context, c Change, event audit.Event) (former perm.Set, err error)
	EndMembership(ctx context.Context, workspaceID, user uuid.UUID, event audit.Event) (Removal, error)
}

// A Change replaces the permissions of a member.
type Change struct {
	WorkspaceID uuid.UUID
	UserID      uuid.UUID
	Permissions perm.Set
	Seen        *perm.Set    // the permissions that the caller saw, or nil
	Answers     *SentRequest // the request that the change answers, or nil
}

// Invitations stores invitations and their answers, like Members.
type Invitations interface {
	Invitations(ctx context.Context, workspaceID uuid.UUID) ([]Invitation, error)
	Invitation(ctx context.Context, workspaceID, id uuid.UUID) (Invitation, error)
	// SaveInvitations stores all of the drafts or none, and returns them with their times, without those that were
	// stored before, by their IDs. It returns ErrSent if all were, or a *Taken. If the deployment sends mail, it queues
	// the links in the same transaction. The tokens themselves are stored nowhere else.
	SaveInvitations(ctx context.Context, workspaceID uuid.UUID, drafts []Draft) ([]Draft, error)
	// RenewInvitation gives an open invitation that still ends at i.Expires a new token, 7 more days and a new inviter,
	// and mails like SaveInvitations.
	RenewInvitation(ctx context.Context, d Draft) (Draft, error)
	WithdrawInvitation(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error

	// Offer returns the open, unexpired invitation with the token, or ErrNoInvitation.
	Offer(ctx context.Context, tokenHash []byte) (Offer, error)
	// Ended returns the invitation with the token that was answered or withdrawn, or has expired, or ErrNoInvitation.
	Ended(ctx context.Context, tokenHash []byte, user uuid.UUID) (Ended, error)
	Accept(ctx context.Context, o Offer, user uuid.UUID, event audit.Event) error
	AcceptAsNewUser(ctx context.Context, o Offer, user NewUser, added, joined audit.Event) error
	// Decline ends an invitation. Without a user, no user may have its address, unless its link was not mailed.
	Decline(ctx context.Context, o Offer, user *uuid.UUID, event audit.Event) error
}

// A Draft is an invitation that is to be stored.
type Draft struct {
	Invitation
	Token   credential.Secret
	Event   audit.Event
	Replace bool         // an open invitation for the same address ends
	Answers *SentRequest // the request that the invitation answers, or nil
}

// A NewUser is a user who is created for an invitation, with its address.
type NewUser struct {
	ID           uuid.UUID
	Name         string
	PasswordHash credential.Secret // "" for a user without a password
}

// A Service changes members and invitations by the rules of the package comment. It is safe for concurrent use.
type Service struct {
	Store interface {
		Members
		Invitations
		Requests
	}
	// PropagateRevocation propagates the ends of grants to Redis.
	PropagateRevocation func(ctx context.Context, ended []useraccount.EndedGrant)
	AppURL              string
	Mails               bool // the store queues mails, which the deployment sends
	Random              io.Reader
}

// An Actor is the user who makes a change.
type Actor = audit.Actor

func managing(given perm.Set) perm.Set { return given.Union(perm.NewSet(perm.AccountWriteMembers)) }

// ChangePermissions replaces the permissions of a member, from the next request on, and returns the member. It returns
// *NotHeld, ErrNoMember, ErrLastHolder, ErrUnproven (M6), or ErrChanged if seen is not nil and no longer the member's
// permissions.
func (s *Service) ChangePermissions(
	ctx context.Context, by Actor, user uuid.UUID, permissions perm.Set, seen *perm.Set,
) (Member, error) {
	member, err := s.Store.WorkspaceMember(ctx, by.WorkspaceID, user)
	if err != nil {
		return Member{}, err
	}
	return s.change(ctx, by, member, Change{
		WorkspaceID: by.WorkspaceID,
		UserID:      user,
		Permissions: permissions,
		Seen:        seen,
	})
}

func (s *Service) change(ctx context.Context, by Actor, member Member, c Change) (Member, error) {
	if c.Seen != nil && c.Seen.Scope() != member.Permissions.Scope() {
		return Member{}, ErrChanged
	}
	added := c.Permissions.Without(member.Permissions)
	if missing := added.Without(by.Permissions); len(missing) > 0 {
		return Member{}, &NotHeld{missing}
	}
	event := by.Event(audit.MemberPermissionsChanged, "user:"+c.UserID.String(),
		map[string]any{"permissions": c.Permissions.Strings()}, managing(added))
	event.UserID = &c.UserID
	_, err := s.Store.ChangePermissions(ctx, c, event)
	member.Permissions = c.Permissions
	return member, err
}

// Remove ends the membership of a user (M3). It returns ErrNoMember or ErrLastHolder.
func (s *Service) Remove(ctx context.Context, by Actor, user uuid.UUID) (Removal, error) {
	event := by.Event(audit.MemberRemoved, "user:"+user.String(), nil, managing(nil))
	event.UserID = &user
	return s.end(ctx, by.WorkspaceID, user, event)
}

// Leave ends the membership of the user who asks for it (M3). It needs no permission. It returns ErrLastHolder.
func (s *Service) Leave(ctx context.Context, by Actor) (Removal, error) {
	return s.end(ctx, by.WorkspaceID, by.UserID, by.Event(audit.MemberLeft, "user:"+by.UserID.String(), nil, nil))
}

func (s *Service) end(ctx context.Context, workspaceID, user uuid.UUID, event audit.Event) (Removal, error) {
	ended, err := s.Store.EndMembership(ctx, workspaceID, user, event)
	if err != nil {
		return Removal{}, err
	}
	s.PropagateRevocation(ctx, ended.Grants)
	return ended, nil
}

// A Sent is an invitation with its link. The link is a secret that is not stored.
type Sent struct {
	Invitation
	Link credential.Secret
}

// Mailed reports whether this deployment sends invitations by e-mail. If not, the inviter sees the link.
func (s *Service) Mailed() bool { return s.Mails }

// A Batch is the invitations that one form sends: all of them, or none.
type Batch struct {
	Emails      []string // canonical (ParseEmail)
	Permissions perm.Set
	Replace     []string  // addresses whose open invitations end
	Form        uuid.UUID // of the form, which can send one invitation to an address

	answers *SentRequest // of the only address, or nil
}

// Invite invites an address, and replaces an open invitation for it. It returns a *Refusal, or an error of InviteAll.
func (s *Service) Invite(ctx context.Context, by Actor, email string, identifiers []string) (Sent, error) {
	email, err := ParseEmail(email)
	if err != nil {
		return Sent{}, err
	}
	permissions, err := ParsePermissions(identifiers)
	if err != nil {
		return Sent{}, err
	}
	sent, err := s.InviteAll(ctx, by, Batch{
		Emails:      []string{email},
		Permissions: permissions,
		Replace:     []string{email},
		Form:        uuid.Must(uuid.NewV7()),
	})
	if err != nil {
		return Sent{}, err
	}
	return sent[0], nil
}

// InviteAll invites each address of the batch to which the form has sent no invitation: all of them or, after an error,
// none. It returns *NotHeld, *LimitError (M5), a *Taken if addresses are those of members or have open invitations that
// are not replaced, or ErrSent if the form has sent all of them.
func (s *Service) InviteAll(ctx context.Context, by Actor, b Batch) (sent []Sent, err error) {
	var drafts []Draft
	for _, email := range b.Emails {
		draft, err := s.draft(by, audit.InvitationCreated, Invitation{
			ID:          uuid.NewSHA1(b.Form, []byte(by.WorkspaceID.String()+email)),
			WorkspaceID: by.WorkspaceID,
			Email:       email,
			Permissions: b.Permissions,
		})
		if err != nil {
			return nil, err
		}
		draft.Answers = b.answers
		draft.Replace = slices.Contains(b.Replace, email)
		drafts = append(drafts, draft)
	}
	if drafts, err = s.Store.SaveInvitations(ctx, by.WorkspaceID, drafts); err != nil {
		return nil, err
	}
	for _, draft := range drafts {
		sent = append(sent, s.sent(draft))
	}
	return sent, nil
}

// Renew sends an open invitation again, with a new link and 7 more days; the earlier link no longer works. The caller
// becomes its inviter. seen is the expiry that the caller saw, so that the same request sent again renews nothing. It
// returns *NotHeld, *LimitError or ErrNoInvitation.
func (s *Service) Renew(ctx context.Context, by Actor, id uuid.UUID, seen time.Time) (Sent, error) {
	i, err := s.Store.Invitation(ctx, by.WorkspaceID, id)
	if err == nil && !i.Expires.Equal(seen) {
		err = ErrNoInvitation
	}
	if err != nil {
		return Sent{}, err
	}
	draft, err := s.draft(by, audit.InvitationRenewed, i)
	if err != nil {
		return Sent{}, err
	}
	if draft, err = s.Store.RenewInvitation(ctx, draft); err != nil {
		return Sent{}, err
	}
	return s.sent(draft), nil
}

// draft returns an invitation of the caller with a new token, or *NotHeld.
func (s *Service) draft(by Actor, action audit.Action, i Invitation) (Draft, error) {
	if missing := i.Permissions.Without(by.Permissions); len(missing) > 0 {
		return Draft{}, &NotHeld{missing}
	}
	token, err := credential.Invitation.New(s.Random)
	if err != nil {
		return Draft{}, fmt.Errorf("create invitation: %w", err)
	}
	i.InviterID = by.UserID
	event := by.Event(action, "invitation:"+i.ID.String(), map[string]any{"permissions": i.Permissions.Strings()},
		managing(i.Permissions))
	return Draft{Invitation: i, Token: token, Event: event}, nil
}

func (s *Service) sent(d Draft) Sent {
	link := s.AppURL + "/invitation?token=" + url.QueryEscape(d.Token.Reveal())
	return Sent{d.Invitation, credential.Secret(link)}
}

// Withdraw ends an open invitation, or returns ErrNoInvitation.
func (s *Service) Withdraw(ctx context.Context, by Actor, id uuid.UUID) error {
	return s.Store.WithdrawInvitation(ctx, by.WorkspaceID, id,
		by.Event(audit.InvitationWithdrawn, "invitation:"+id.String(), nil, managing(nil)))
}

// Offer returns the invitation of a link, or ErrNoInvitation if it was answered, withdrawn or renewed, or has expired.
func (s *Service) Offer(ctx context.Context, token credential.Secret) (Offer, error) {
	if !credential.Invitation.Matches(token.Reveal()) {
		return Offer{}, ErrNoInvitation
	}
	return s.Store.Offer(ctx, credential.Hash(token.Reveal()))
}

// An Ended invitation was answered or withdrawn, or has expired. The page of its link says whom to ask.
type Ended struct {
	WorkspaceID uuid.UUID
	Workspace   string
	Inviter     string // "" if the account was deleted
	Outcome     string // accepted, declined, withdrawn, replaced or expired
	Member      bool   // the user of the request is a member of the workspace
}

// Ended returns the invitation of a link that no longer works, or ErrNoInvitation if there is none, for a user, or for
// a person who is not signed in if user is the zero UUID.
func (s *Service) Ended(ctx context.Context, token credential.Secret, user uuid.UUID) (Ended, error) {
	if !credential.Invitation.Matches(token.Reveal()) {
		return Ended{}, ErrNoInvitation
	}
	return s.Store.Ended(ctx, credential.Hash(token.Reveal()), user)
}

// Accept makes a signed-in user a member (M4). The event is of the user. Accept returns ErrOtherAddress, ErrUnproven,
// ErrInviter, ErrMember or ErrNoInvitation.
func (s *Service) Accept(ctx context.Context, o Offer, user uuid.UUID, event audit.Event) error {
	return s.Store.Accept(ctx, o, user, joinedBy(event, o, user))
}

// AcceptAsNewUser creates a user with the invitation's address, and makes the user a member (M4). It returns
// ErrAccountExists, ErrInviter or ErrNoInvitation.
func (s *Service) AcceptAsNewUser(
	ctx context.Context, o Offer, name string, hash credential.Secret, requestID string,
) (uuid.UUID, error) {
	user := NewUser{ID: uuid.Must(uuid.NewV7()), Name: name, PasswordHash: hash}
	added, joined := EventsOf(o, user, requestID)
	return user.ID, s.Store.AcceptAsNewUser(ctx, o, user, added, joined)
}

// EventsOf returns the events of a user who is created for an invitation: the account, and the membership.
func EventsOf(o Offer, user NewUser, requestID string) (added, joined audit.Event) {
	added = audit.Event{
		UserID:    &user.ID,
		Actor:     "user:" + user.ID.String(),
		Action:    audit.UserAdded,
		Subject:   "user:" + user.ID.String(),
		Detail:    map[string]any{"invitation": o.ID.String()},
		RequestID: requestID,
		// The transaction checks the secret of the link.
		Authorization: &audit.Authorization{Link: true},
	}
	return added, joinedBy(added, o, user.ID)
}

func joinedBy(event audit.Event, o Offer, user uuid.UUID) audit.Event {
	event.WorkspaceID, event.UserID = &o.WorkspaceID, &user
	event.Action, event.Subject = audit.MemberAdded, "user:"+user.String()
	event.Detail = map[string]any{
		"permissions": o.Permissions.Strings(),
		"invitation":  o.ID.String(),
		"invited_by":  o.InviterID.String(),
	}
	return event
}

// Decline ends an invitation at the wish of the invited person. user is nil for a person who is not signed in. Decline
// returns ErrOtherAddress, ErrAccountExists or ErrNoInvitation.
func (s *Service) Decline(ctx context.Context, o Offer, user *uuid.UUID, event audit.Event) error {
	event.WorkspaceID, event.UserID = &o.WorkspaceID, user
	event.Action, event.Subject = audit.InvitationDeclined, "invitation:"+o.ID.String()
	if user == nil {
		event.Authorization = &audit.Authorization{Link: true}
	}
	return s.Store.Decline(ctx, o, user, event)
}
