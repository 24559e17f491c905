package admin

import (
	"context"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/perm"
)

// A Manager is a member who may now manage the members of a workspace.
type Manager struct {
	WorkspaceID uuid.UUID `json:"tenantId"`
	Workspace   string    `json:"workspace"` // the workspace's name
	UserID      uuid.UUID `json:"userId"`
	Email       string    `json:"email"`
	Permissions []string  `json:"permissions"`
}

func (Manager) columns() []string {
	return []string{"WORKSPACE", "NAME", "USER", "E-MAIL", "PERMISSIONS"}
}

func (m Manager) cells() []string {
	return []string{m.WorkspaceID.String(), m.Workspace, m.UserID.String(), m.Email, list(m.Permissions)}
}

// AppointManagers gives account:read:members and account:write:members to the members with account:api:access of one
// workspace, or of all for "". It changes no workspace in which a member has account:write:members, so that it can be
// repeated. Each workspace is changed in a transaction of its own.
func (d *Service) AppointManagers(ctx context.Context, workspace string) (Result, error) {
	only, err := parseOptional("workspace", workspace)
	if err != nil {
		return nil, err
	}
	workspaces, err := d.Store.Workspaces(ctx, nil)
	if err != nil {
		return nil, err
	}
	out, known := List[Manager]{}, only == nil
	for _, w := range workspaces {
		if only != nil && w.ID != *only {
			continue
		}
		known = true
		appointed, err := d.Store.AppointManagers(ctx, w.ID, func(user uuid.UUID, former, now perm.Set) audit.Event {
			entry := event(audit.MemberPermissionsChanged, "user", user)
			entry.WorkspaceID, entry.UserID = &w.ID, &user
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
