package settings

import (
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/perm"
)

// administrationWords describes an action of the deployment's administrator (package admin), or returns "".
func administrationWords(e audit.Entry) string {
	switch e.Action {
	case "tenant.added":
		return "Created the workspace"
	case "module.changed":
		return "Changed the module " + text(e, "module") + ": " + strings.Join(texts(e, "changes"), ", ")
	case "feature.changed":
		return "Switched " + feature(text(e, "feature")) + " " + text(e, "state")
	case "member.added":
		return "Added a member" + forPerson(e) + ". Permissions: " + holds(e)
	case "member.permissions_changed":
		return "Changed the permissions of a member" + forPerson(e) + " to: " + holds(e)
	case "member.removed":
		return "Removed a member" + forPerson(e) + " and revoked their tokens and connections in the workspace"
	case "user.added":
		return "Created the account"
	case "user.password_set":
		return "Set a new password and signed out all browsers"
	case "user.disabled":
		return "Disabled the account"
	case "user.enabled":
		return "Enabled the account"
	}
	return ""
}

// feature returns the display name of a feature.
func feature(identifier string) string {
	if identifier == "llm_integration" {
		return "LLM integration"
	}
	return "the feature " + identifier
}

// holds returns the titles of the event's permissions.
func holds(e audit.Entry) string {
	var titles []string
	for _, p := range perm.FromStrings(texts(e, "permissions")) {
		title := string(p)
		if entry, known := perm.Describe(p); known {
			title = entry.Title
		}
		titles = append(titles, "“"+title+"”")
	}
	if len(titles) == 0 {
		return "none"
	}
	return strings.Join(titles, ", ")
}

// text returns a detail of an event that is a string, or "".
func text(e audit.Entry, name string) string {
	found, _ := e.Detail[name].(string)
	return found
}

// texts returns a detail of an event that is a list of strings, or nil.
func texts(e audit.Entry, name string) []string {
	list, _ := e.Detail[name].([]any)
	var out []string
	for _, one := range list {
		if found, ok := one.(string); ok {
			out = append(out, found)
		}
	}
	return out
}
