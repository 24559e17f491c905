package gate

import (
	"context"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/perm"
)

// recheckKey is the context key of the check that StillAdmitted runs.
type recheckKey struct{}

// withRecheck returns a context in which StillAdmitted checks steps 1, 3 and 4 again.
func (g *Gate) withRecheck(
	ctx context.Context, held presented, workspaceID uuid.UUID, need perm.Permission,
) context.Context {
	return context.WithValue(ctx, recheckKey{}, func(ctx context.Context) error {
		s, err := g.readStanding(ctx, held, workspaceID, need, Plan{})
		if err != nil {
			return err
		}
		if err := g.access(ctx, held, s, workspaceID, need); err != nil {
			return err
		}
		return g.refuseModule(s, need)
	})
}

// StillAdmitted returns an error if the request of an export would be refused now, because its credential has ended or
// its user has lost the permission. It returns nil for other requests, which are short.
func StillAdmitted(ctx context.Context) error {
	check, ok := ctx.Value(recheckKey{}).(func(context.Context) error)
	if !ok {
		return nil
	}
	return check(ctx)
}
