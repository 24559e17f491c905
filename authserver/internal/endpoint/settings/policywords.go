package settings

import (
	"fmt"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/policy"
	"github.com/almonerhq/almoner/shared/perm"
)

// policyChanged describes the event connector_policy.changed: the differences, and the effect on connections.
func policyChanged(e audit.Entry) string {
	before, _ := e.Detail["before"].(map[string]any)
	after, _ := e.Detail["after"].(map[string]any)
	was, is := strings.Join(identifiers(before["platforms"]), " "), strings.Join(identifiers(after["platforms"]), " ")
	var parts []string
	if was != is {
		parts = append(parts, "allowed platforms: "+platformList(identifiers(after["platforms"])))
	}
	held := perm.FromStrings(identifiers(before["permissions"]))
	holds := perm.FromStrings(identifiers(after["permissions"]))
	if lost := held.Without(holds); len(lost) > 0 {
		parts = append(parts, "no longer allowed: "+titles(lost))
	}
	if gained := holds.Without(held); len(gained) > 0 {
		parts = append(parts, "newly allowed: "+titles(gained))
	}
	if before["days"] != after["days"] {
		parts = append(parts, fmt.Sprintf("access lasts %v days instead of %v", after["days"], before["days"]))
	}
	ended, _ := e.Detail["ended"].(float64)
	return "Changed the connector policy: " + strings.Join(
		append(parts, effectWords(policy.Effect{End: int(ended)}, "ended", "", "")...),
		"; ",
	)
}

// grantNarrowed describes the event grant.narrowed.
func grantNarrowed(e audit.Entry, application string) string {
	out := "The connector policy reduced the access of " + application + forPerson(e)
	former := perm.FromStrings(identifiers(e.Detail["former_permissions"]))
	if lost := former.Without(perm.FromStrings(identifiers(e.Detail["permissions"]))); len(lost) > 0 {
		out += ". Removed: " + titles(lost)
	}
	if e.Detail["ends_at"] != e.Detail["former_ends_at"] {
		text, _ := e.Detail["ends_at"].(string)
		if ends, err := time.Parse(time.RFC3339, text); err == nil {
			out += ". Expires on " + ends.UTC().Format("2 January 2006")
		}
	}
	return out
}

func identifiers(value any) []string {
	list, _ := value.([]any)
	out := make([]string, 0, len(list))
	for _, one := range list {
		if text, ok := one.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

func platformList(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	for i, name := range names {
		names[i] = workspace.Platform(name).Name()
	}
	return strings.Join(names, ", ")
}

func titles(set perm.Set) string {
	out := make([]string, len(set))
	for i, p := range set {
		out[i] = string(p)
		if entry, known := perm.Describe(p); known {
			out[i] = entry.Title
		}
	}
	return strings.Join(out, ", ")
}
