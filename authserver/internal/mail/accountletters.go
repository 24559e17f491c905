package mail

import (
	"fmt"
	"strings"
)

func accountDeleted(s site, m Message) letter {
	return letter{Subject: "Your account was deleted", Lines: []string{
		"Your account at " + s.host() + " was deleted on " + moment(m.Data.At) + ".",
		"Its memberships, connections, personal access tokens and sign-ins have ended. Your name and this " +
			"address were removed.",
		"If this was not you, tell an administrator of your workspaces. The account cannot be restored.",
	}}
}

func emailChangeOld(s site, m Message) letter {
	return letter{
		Subject: "Confirm the change of your e-mail address",
		Lines: []string{
			"On " + moment(m.Data.At) + where(m.Data) + ", you asked to use the address " + m.Data.Email +
				" for your account at " + s.host() + ".",
			"Open this page to confirm the change, or to stop it if this was not you. Your address changes only " +
				"when you have also confirmed it with the link that we sent to the other address.",
		},
		Button: "Confirm or stop the change",
		Link:   s.withToken(EmailChangePath, m),
		After: []string{
			"The link works until " + moment(m.Expires) + ".",
			"If this was not you, stop the change and set a new password: another person may be signed in to your " +
				"account.",
		},
	}
}

func emailChangeNew(s site, m Message) letter {
	return letter{
		Subject: "Confirm your new e-mail address",
		Lines: []string{
			"A person asked to use this address for their account at " + s.host() + ". If it was you, confirm it.",
			"The address changes only when you have also confirmed it with the link that we sent to your current " +
				"address.",
		},
		Button: "Confirm the address",
		Link:   s.withToken(EmailChangePath, m),
		After: []string{
			"The link works until " + moment(m.Expires) + ".",
			"If it was not you, ignore this message. Nothing will change.",
		},
	}
}

func emailTaken(s site, _ Message) letter {
	return letter{Subject: "Your address was entered for another account", Lines: []string{
		"A person asked to use this address for their account at " + s.host() + ". You have an account with this " +
			"address already, so nothing was changed.",
		"If it was you, sign in with this address, or change or delete this account first.",
		"If it was not you, ignore this message.",
	}}
}

func emailChanged(s site, m Message) letter {
	return letter{Subject: "Your e-mail address was changed", Lines: []string{
		"The address of your account at " + s.host() + " was changed on " + moment(m.Data.At) + where(m.Data) +
			". You now sign in with " + m.Data.Email + ".",
		"Links to set a password that you requested before the change no longer work.",
		operatorAdvice(s),
	}}
}

func addressProven(s site, m Message) letter {
	again := "To sign in with a password or a passkey, add it again in your settings."
	if m.Data.PasswordSet {
		again = "The password that you have just set works. If you used a passkey or an authenticator app, add it " +
			"again."
	}
	return letter{
		Subject: "Your e-mail address was confirmed",
		Lines: []string{
			"The address of your account at " + s.host() + " was confirmed on " + moment(m.Data.At) + ".",
			"The address had never been confirmed before, so another person may have created the account. We ended " +
				"everything that gave access to it: the earlier password, passkeys, linked accounts, authenticator " +
				"app, sign-ins, connections and personal access tokens.",
			again + " If an application lost its access, connect it again.",
		},
		Button: "Open your settings",
		Link:   s.page("/settings/security"),
	}
}

func memberAddressProven(s site, m Message) letter {
	d := m.Data
	return letter{
		Subject: "A member of " + d.Workspace + " confirmed their e-mail address",
		Lines: []string{
			d.Person + ", a member of the workspace " + d.Workspace + ", confirmed the address of their account at " +
				s.host() + " on " + moment(d.At) + ".",
			"The address had never been confirmed before, so another person may have used the account. We ended " +
				"everything that gave access to it, and its connections, personal access tokens, webhooks and open " +
				"invitations. " + d.Person + " is still a member.",
			"To see what the account was used for, open the audit log.",
		},
		Button: "Open the member",
		Link:   s.page(d.Path),
	}
}

func wrongCodes(s site, m Message) letter {
	return letter{
		Subject: "Wrong codes were entered for your account",
		Lines: []string{
			"On " + moment(m.Data.At) + where(m.Data) + ", the password of your account at " + s.host() +
				" was entered correctly, followed by several wrong codes of your authenticator app.",
			"If this was not you, another person knows your password. They could not sign in without a code. Set a " +
				"new password now.",
		},
		Button: "Set a new password",
		Link:   s.page("/login/forgotten"),
	}
}

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
		Button: "Open your settings",
		Link:   s.page("/settings/user"),
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
		Subject: "Request for access to " + d.Workspace,
		Lines:   lines,
		Button:  button,
		Link:    s.page(d.Path),
	}
}
