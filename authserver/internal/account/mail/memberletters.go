package mail

import (
	"fmt"
	"strings"
)

// Paths of the pages that links lead to.
const (
	InvitationPath  = "/invitation"
	ResetPath       = "/login/reset"
	EmailChangePath = "/email"
)

func invitation(s site, m Message) letter {
	d := m.Data
	lines := []string{fmt.Sprintf("%s invited you to the workspace %s.", or(d.Person, "An administrator"), d.Workspace)}
	if len(d.Permissions) > 0 {
		lines = append(lines, "You will be able to: "+strings.Join(d.Permissions, ", ")+".")
	}
	return letter{
		Subject: "Invitation to " + d.Workspace,
		Lines:   lines,
		Button:  "Open the invitation",
		Link:    s.withToken(InvitationPath, m),
		After: []string{
			"The invitation ends on " + moment(m.Expires) + ". It works once, for this e-mail address.",
			"If you do not expect it, ignore this message.",
		},
	}
}

func removed(s site, m Message) letter {
	d := m.Data
	return letter{
		Subject: "You were removed from a workspace",
		Lines: []string{
			fmt.Sprintf("You were removed from the workspace %s on %s.", d.Workspace, moment(d.At)),
			"Your connections and personal access tokens in this workspace no longer work. If this is a mistake, ask " +
				"an administrator of the workspace.",
		},
		Unwanted: s.page("/settings/security"),
	}
}

func permissionsChanged(s site, m Message) letter {
	d := m.Data
	can := "You no longer have any permissions in this workspace."
	if len(d.Permissions) > 0 {
		can = "You can now: " + strings.Join(d.Permissions, ", ") + "."
	}
	return letter{
		Subject: "Your permissions were changed",
		Lines: []string{
			"An administrator changed your permissions in the workspace " + d.Workspace + " on " + moment(d.At) + ".",
			can,
		},
		Button:   "Open your settings",
		Link:     s.page("/settings/user"),
		Unwanted: s.page("/settings/security"),
	}
}

func accessRequested(s site, m Message) letter {
	d := m.Data
	asks := fmt.Sprintf("%s (%s) asks for access to the workspace %s.", d.Person, d.Email, d.Workspace)
	button := "Open the form"
	if d.LLMIntegration {
		asks = fmt.Sprintf("%s (%s) asks you to switch on the LLM integration of the workspace %s.",
			d.Person, d.Email, d.Workspace)
		button = "Open the connector settings"
	}
	if d.Policy {
		asks = fmt.Sprintf("%s (%s) asks you to change the connector policy of the workspace %s. It refuses an "+
			"application that this person wants to connect.", d.Person, d.Email, d.Workspace)
		button = "Open the connector policy"
	}
	lines := []string{asks}
	if d.Application != "" {
		lines = append(lines, "It is needed to connect this application: "+d.Application+".")
	}
	if len(d.Permissions) > 0 {
		lines = append(lines, "Requested: "+strings.Join(d.Permissions, ", ")+".")
	}
	lines = append(lines,
		"Nothing changes unless you give this access. If you do not know this person, ignore this message.")
	return letter{
		Subject:  "Request for access to " + d.Workspace,
		Lines:    lines,
		Button:   button,
		Link:     s.page(d.Path),
		Unwanted: s.page("/settings/security"),
	}
}
