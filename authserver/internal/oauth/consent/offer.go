package consent

import (
	"errors"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/perm"
)

// ErrLLMOff says that connectors may not act in the workspace (spec 4.4).
var ErrLLMOff = errors.New("the workspace has its LLM integration switched off")

// A MissingPermissionsError says that the user does not hold what the client needs.
type MissingPermissionsError struct{ Missing perm.Set }

func (e *MissingPermissionsError) Error() string { return "the user lacks: " + e.Missing.Scope() }

// AddRequiredReads adds to what a connector asks for the reads without which its writes are of no use, where it may
// have them and the user holds both: platforms warn their users of a write that comes without its read.
func AddRequiredReads(c client.Client, asked perm.Set, in workspace.Membership) perm.Set {
	if c.Kind.Traits().AllOrNothing {
		return asked
	}
	return asked.Union(asked.Intersect(in.Permissions).Needs().Intersect(c.Required).Intersect(in.Permissions))
}

// Evaluate splits what is asked into what the user may give in this workspace and what is left out, because the user
// does not hold it (contract, section 4), or not the read that goes with it. A kind that is all or nothing leaves
// nothing out. It returns ErrLLMOff or a *LackError.
func Evaluate(c client.Client, asked perm.Set, in workspace.Membership) (granted, leftOut perm.Set, err error) {
	traits := c.Kind.Traits()
	if traits.NeedsLLM && !in.Workspace.LLMIntegration {
		return nil, nil, ErrLLMOff
	}
	granted, leftOut = asked.Intersect(in.Permissions), asked.Without(in.Permissions)
	if !traits.AllOrNothing {
		for _, p := range granted {
			if reads := perm.NewSet(p).Needs().Intersect(c.Required).Without(in.Permissions); len(reads) > 0 {
				granted, leftOut = granted.Without(perm.NewSet(p)), leftOut.Union(reads).Union(perm.NewSet(p))
			}
		}
	}
	if len(granted) == 0 || (traits.AllOrNothing && len(leftOut) > 0) {
		return nil, nil, &MissingPermissionsError{Missing: leftOut}
	}
	return granted, leftOut, nil
}

// ReadOnly is the part of a set that lets its holder see and change nothing: the smaller of the two presets that a
// connector's page offers. It is nil where it would be the same, or nothing.
func ReadOnly(kind client.Kind, set perm.Set) perm.Set {
	if kind.Traits().AllOrNothing {
		return nil
	}
	var out perm.Set
	for _, p := range set {
		if parts := strings.Split(string(p), ":"); len(parts) == 3 && parts[1] == "read" {
			out = append(out, p)
		}
	}
	if len(out) == len(set) {
		return nil
	}
	return out
}
