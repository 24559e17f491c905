package consent

import (
	"errors"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/perm"
)

// Refusals by a workspace's connector policy.
var (
	ErrPlatformNotAllowed = errors.New("the workspace's connector policy does not allow this platform")
	ErrNothingAllowed     = errors.New("the workspace's connector policy allows none of the permissions")
)

// ApplyPolicy splits what a user could grant to a client into what the workspace's connector policy allows and what it
// withholds. It returns ErrPlatformNotAllowed or ErrNothingAllowed. The policy applies only to connectors.
func ApplyPolicy(c client.Client, could perm.Set, in workspace.Workspace) (granted, withheld perm.Set, err error) {
	if c.Kind != client.Connector {
		return could, nil, nil
	}
	granted, withheld = could.Intersect(in.Connectors.Permissions), could.Without(in.Connectors.Permissions)
	switch {
	case !in.Connectors.Allows(workspace.PlatformOf(c.Platform)):
		return nil, nil, ErrPlatformNotAllowed
	case len(granted) == 0:
		return nil, withheld, ErrNothingAllowed
	}
	return granted, withheld, nil
}

// Life returns how long a client's grant lasts in a workspace from consent.
func Life(c client.Client, in workspace.Workspace) time.Duration {
	life := c.Kind.Traits().GrantLife
	if c.Kind == client.Connector {
		life = min(life, in.Connectors.Life())
	}
	return life
}
