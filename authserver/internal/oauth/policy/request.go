package policy

import (
	"fmt"
	"slices"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A Request is a policy as the user entered it.
type Request struct {
	Platforms   []string
	Permissions []string
	Days        int
}

// A Refusal says which field of a request is invalid, and why.
type Refusal struct{ Field, Message string }

func (r *Refusal) Error() string { return r.Message }

// The fields that a Refusal names.
const (
	FieldPlatforms   = "platforms"
	FieldPermissions = "permissions"
	FieldDays        = "days"
)

// Accept returns the policy, or a *Refusal.
func (r Request) Accept() (workspace.ConnectorPolicy, error) {
	var out workspace.ConnectorPolicy
	for _, platform := range workspace.Platforms() {
		if slices.Contains(r.Platforms, string(platform)) {
			out.Platforms = append(out.Platforms, platform)
		}
	}
	for _, text := range r.Platforms {
		if !slices.Contains(workspace.Platforms(), workspace.Platform(text)) {
			return workspace.ConnectorPolicy{}, &Refusal{FieldPlatforms, "A platform must be claude, chatgpt or other."}
		}
	}
	out.Permissions = perm.FromStrings(r.Permissions)
	if len(out.Permissions) == 0 {
		return workspace.ConnectorPolicy{}, &Refusal{
			FieldPermissions,
			"Choose at least one permission. To block all connectors, choose no platform.",
		}
	}
	for _, p := range out.Permissions {
		entry, known := perm.Describe(p)
		switch {
		case !known || !entry.Connector:
			return workspace.ConnectorPolicy{}, &Refusal{
				FieldPermissions,
				"Connectors cannot have this permission.",
			}
		case entry.Needs != "" && !out.Permissions.Has(entry.Needs):
			needed, _ := perm.Describe(entry.Needs)
			return workspace.ConnectorPolicy{}, &Refusal{
				FieldPermissions,
				fmt.Sprintf("“%s” requires “%s”. Choose both or neither.", entry.Title, needed.Title),
			}
		}
	}
	if r.Days < 1 || r.Days > workspace.MaxDays {
		return workspace.ConnectorPolicy{}, &Refusal{
			FieldDays,
			fmt.Sprintf("Enter a number of days from 1 to %d.", workspace.MaxDays),
		}
	}
	out.Days = r.Days
	return out, nil
}
