package rehearsal

import (
	"context"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// RemoveMember is the removal of a member of the workspace.
func RemoveMember(user uuid.UUID) Change {
	return Change{
		scope: Scope{UserID: &user},
		act: func(ctx context.Context, r *Rehearsals, by audit.Actor) error {
			_, err := r.Members.Remove(ctx, by, user)
			return err
		},
	}
}

// Leave is the end of the actor's own membership. It needs no permission.
func Leave(user uuid.UUID) Change {
	return Change{
		scope: Scope{UserID: &user},
		act: func(ctx context.Context, r *Rehearsals, by audit.Actor) error {
			_, err := r.Members.Leave(ctx, by)
			return err
		},
	}
}

// SetPermissions replaces the permissions of a member. It is refused if seen is not nil and no longer the member's
// permissions.
func SetPermissions(user uuid.UUID, permissions perm.Set, seen *perm.Set) Change {
	return Change{
		scope: Scope{UserID: &user},
		act: func(ctx context.Context, r *Rehearsals, by audit.Actor) error {
			_, err := r.Members.ChangePermissions(ctx, by, user, permissions, seen)
			return err
		},
	}
}

// SetPolicy replaces the connector policy of the workspace, whatever it is now. needs are the permissions that the
// actor needs for that.
func SetPolicy(policy workspace.ConnectorPolicy, needs perm.Set) Change {
	return Change{
		scope: Scope{Assistants: true},
		act: func(ctx context.Context, r *Rehearsals, by audit.Actor) error {
			now, err := r.Connections.Store.ConnectorPolicy(ctx, by.WorkspaceID)
			if err == nil {
				_, err = r.Connections.SetPolicy(ctx, by, now.Digest(), policy, needs)
			}
			return err
		},
	}
}

// SwitchAssistants switches LLM integration of the workspace on or off.
func SwitchAssistants(on bool) Change {
	return Change{
		act: func(ctx context.Context, r *Rehearsals, by audit.Actor) error {
			return r.Connections.SwitchAssistants(ctx, by, on)
		},
	}
}

// DeleteClient deletes an OAuth client of the workspace.
func DeleteClient(id uuid.UUID) Change {
	return Change{
		scope: Scope{ClientID: &id},
		act: func(ctx context.Context, r *Rehearsals, by audit.Actor) error {
			_, err := r.Clients.Delete(ctx, by, id, nil)
			return err
		},
	}
}

// DeleteTrustedIssuer deletes a trusted issuer of the workspace. No workspace has one yet, so it is always refused.
func DeleteTrustedIssuer(uuid.UUID) Change {
	return Change{
		act: func(context.Context, *Rehearsals, audit.Actor) error { return ErrNoIssuer },
	}
}

// DisableModule switches a known module of the workspace off. Only the operator of the server can make this change.
func DisableModule(module string) Change {
	return Change{
		act: func(ctx context.Context, r *Rehearsals, by audit.Actor) error {
			event := by.Event(audit.ModuleChanged, "tenant:"+by.WorkspaceID.String(),
				map[string]any{"module": module, "changes": []string{"disable"}}, perm.NewSet(perm.AccountWriteMembers))
			return r.DisableModule(ctx, by.WorkspaceID, module, event)
		},
	}
}
