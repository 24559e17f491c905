package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

type memberCommands struct {
	Add             AddMember       `cmd:"" help:"Add a user to a workspace."`
	List            ListMembers     `cmd:"" help:"List the members of a workspace."`
	SetPermissions  SetPermissions  `cmd:"" help:"Replace the permissions of a member."`
	Remove          RemoveMember    `cmd:"" help:"Remove a user from a workspace, and revoke their grants and personal access tokens there."`
	AppointManagers AppointManagers `cmd:"" help:"Give account:read:members and account:write:members to the members with account:api:access, in workspaces where no member has account:write:members. Lists whom it changed."`
}

// A Member is a user's membership in a workspace.
type Member struct {
	UserID      uuid.UUID `json:"userId"`
	Email       string    `json:"email"`
	Name        string    `json:"name"`
	Permissions []string  `json:"permissions"`
	Since       time.Time `json:"since"`
	Disabled    bool      `json:"disabled"`
}

// MemberStore stores memberships.
type MemberStore interface {
	AddMember(ctx context.Context, workspaceID, user uuid.UUID, permissions perm.Set, event audit.Event) error
	Members(ctx context.Context, workspaceID uuid.UUID) ([]Member, error)
	membership.Members
	// AppointManagers makes the members with account:api:access of a workspace without a manager its managers, and
	// returns them. event returns the event of a change.
	AppointManagers(
		ctx context.Context, workspaceID uuid.UUID, event func(user uuid.UUID, former, now perm.Set) audit.Event,
	) ([]Member, error)
}

func (m Member) cells() []cell {
	name := m.Name
	if m.Disabled {
		name += " (disabled)"
	}
	return []cell{
		{"USER", m.UserID}, {"E-MAIL", m.Email}, {"NAME", name}, {"SINCE", m.Since}, {"PERMISSIONS", m.Permissions},
	}
}

// findMember parses the workspace and the user, and creates the event of the change.
func (s *Service) findMember(
	ctx context.Context, workspace, user string, action audit.Action,
) (uuid.UUID, uuid.UUID, audit.Event, error) {
	workspaceID, err := parseID("workspace", workspace)
	if err != nil {
		return uuid.Nil, uuid.Nil, audit.Event{}, err
	}
	userID, err := s.findUser(ctx, user)
	entry := userEvent(action, userID)
	entry.WorkspaceID = &workspaceID
	return workspaceID, userID, entry, err
}

// parsePermissions parses identifiers, or one of the words all and none.
func parsePermissions(texts []string) (perm.Set, error) {
	if len(texts) == 1 && texts[0] == "none" {
		return perm.Set{}, nil
	}
	if len(texts) == 1 && texts[0] == "all" {
		return perm.FullSet(), nil
	}
	if len(texts) == 0 {
		return nil, refuse("give permissions, or all, or none")
	}
	set := perm.FromStrings(texts)
	for _, p := range set {
		if !perm.Known(p) {
			return nil, refuse(fmt.Sprintf("unknown permission %q: use %s", string(p), list(perm.FullSet().Strings())))
		}
	}
	return set, nil
}

// AddMember makes a user a member of a workspace.
type AddMember struct {
	Workspace   string   `arg:"" help:"Id of the workspace."`
	User        string   `arg:"" help:"UUID or e-mail address of the user."`
	Permissions []string `arg:"" help:"Permissions, or all, or none."`
}

// change parses the arguments, and creates the event of the change.
func (c AddMember) change(
	ctx context.Context, s *Service, action audit.Action,
) (change membership.Change, entry audit.Event, err error) {
	if change.Permissions, err = parsePermissions(c.Permissions); err != nil {
		return change, entry, err
	}
	change.WorkspaceID, change.UserID, entry, err = s.findMember(ctx, c.Workspace, c.User, action)
	entry.Detail = map[string]any{"permissions": change.Permissions.Strings()}
	return change, entry, err
}

func (c AddMember) run(ctx context.Context, s *Service) (Result, error) {
	change, entry, err := c.change(ctx, s, audit.MemberAdded)
	if err != nil {
		return nil, err
	}
	err = s.Store.AddMember(ctx, change.WorkspaceID, change.UserID, change.Permissions, entry)
	set := change.Permissions.Strings()
	return Outcome{
		"Added the member. Permissions: " + list(set) + ".",
		map[string]any{"tenantId": change.WorkspaceID, "userId": change.UserID, "permissions": set},
	}, err
}

// ListMembers lists the members of a workspace, by e-mail address.
type ListMembers struct {
	Workspace string `arg:"" help:"Id of the workspace."`
}

func (c ListMembers) run(ctx context.Context, s *Service) (Result, error) {
	id, err := parseID("workspace", c.Workspace)
	if err != nil {
		return nil, err
	}
	return listed(s.Store.Members(ctx, id))
}

// SetPermissions replaces the permissions of a member, from the next request on. It has the arguments of AddMember.
type SetPermissions AddMember

func (c SetPermissions) run(ctx context.Context, s *Service) (Result, error) {
	change, entry, err := AddMember(c).change(ctx, s, audit.MemberPermissionsChanged)
	if err != nil {
		return nil, err
	}
	former, err := s.Store.ChangePermissions(ctx, change, entry)
	set := change.Permissions.Strings()
	return Outcome{"Changed the member. Permissions: " + list(set) + ".", map[string]any{
		"tenantId": change.WorkspaceID, "userId": change.UserID, "permissions": set, "former": former.Strings(),
	}}, err
}

// others says that the servers revoke more grants and tokens than a command has done.
func others(more bool) string {
	if !more {
		return ""
	}
	return " The others no longer work. The servers revoke them in the background."
}

// RemoveMember ends a membership and revokes the credentials that depend on it.
type RemoveMember struct {
	Workspace string `arg:"" help:"Id of the workspace."`
	User      string `arg:"" help:"UUID or e-mail address of the user."`
}

func (c RemoveMember) run(ctx context.Context, s *Service) (Result, error) {
	workspaceID, userID, entry, err := s.findMember(ctx, c.Workspace, c.User, audit.MemberRemoved)
	if err != nil {
		return nil, err
	}
	ended, err := s.Store.EndMembership(ctx, workspaceID, userID, entry)
	if err != nil {
		return nil, err
	}
	s.PropagateRevocation(ctx, Revoked(ended.Grants, grant.MembershipOver))
	return Outcome{
		fmt.Sprintf("Removed the member. Revoked: %s, %s.", plural(len(ended.Grants), "grant"),
			plural(ended.Tokens, "personal access token")) + others(ended.More),
		map[string]any{
			"tenantId":      workspaceID,
			"userId":        userID,
			"revokedGrants": len(ended.Grants),
			"revokedTokens": ended.Tokens,
			"more":          ended.More,
		},
	}, nil
}

// A Manager is a member who may now manage the members of a workspace.
type Manager struct {
	WorkspaceID uuid.UUID `json:"tenantId"`
	Workspace   string    `json:"workspace"` // the workspace's name
	UserID      uuid.UUID `json:"userId"`
	Email       string    `json:"email"`
	Permissions []string  `json:"permissions"`
}

func (m Manager) cells() []cell {
	return []cell{
		{"WORKSPACE", m.WorkspaceID}, {"NAME", m.Workspace}, {"USER", m.UserID}, {"E-MAIL", m.Email},
		{"PERMISSIONS", m.Permissions},
	}
}

// AppointManagers gives account:read:members and account:write:members to the members with account:api:access of one
// workspace, or of all. It changes no workspace in which a member has account:write:members, so that it can be
// repeated. Each workspace is changed in a transaction of its own.
type AppointManagers struct {
	Workspace string `placeholder:"ID" aliases:"tenant" help:"Only in one workspace."`
}

func (c AppointManagers) run(ctx context.Context, s *Service) (Result, error) {
	only, err := parseOptional("workspace", c.Workspace)
	if err != nil {
		return nil, err
	}
	workspaces, err := s.Store.Workspaces(ctx, nil)
	if err != nil {
		return nil, err
	}
	out, known := List[Manager]{}, only == nil
	for _, w := range workspaces {
		if only != nil && w.ID != *only {
			continue
		}
		known = true
		appointed, err := s.Store.AppointManagers(ctx, w.ID, func(user uuid.UUID, former, now perm.Set) audit.Event {
			entry := userEvent(audit.MemberPermissionsChanged, user)
			entry.WorkspaceID = &w.ID
			entry.Detail = map[string]any{"permissions": now.Strings(), "former": former.Strings()}
			return entry
		})
		if err != nil {
			return nil, err
		}
		for _, m := range appointed {
			out = append(out, Manager{
				WorkspaceID: w.ID,
				Workspace:   w.Name,
				UserID:      m.UserID,
				Email:       m.Email,
				Permissions: m.Permissions,
			})
		}
	}
	if !known {
		return nil, ErrNoWorkspace
	}
	return out, nil
}
