package mail

import "strings"

// A note is the letter of a change of an account, as data. In its text, {host}, {at}, {where}, {name} and {workspace}
// stand for the data of the message.
type note struct {
	kind    Kind
	subject string
	change  string // what happened
	// advice is what to do if the recipient did not do it, or "" for checkSignIn; if an operator did it, operatorAdvice
	// replaces it.
	advice string
	button string // or "" for openSignIn
	page   string // local path of the link, or "" for Data.Path
}

const (
	checkSignIn   = "If this was not you, set a new password, and remove what you do not recognise."
	checkTokens   = "If this was not you, revoke the token and set a new password."
	replaceNow    = "If this was not you, set a new password now."
	openSignIn    = "Check how you sign in"
	setPassword   = "Set a new password"
	forgottenPage = "/login/forgotten"
)

// notes are the letters that are data.
var notes = []note{
	{
		kind:    PasswordChanged,
		subject: "Your password was changed",
		change:  "The password of your account at {host} was changed on {at}{where}.",
		advice:  replaceNow,
		button:  setPassword,
		page:    forgottenPage,
	},
	{
		kind:    PasswordRemoved,
		subject: "Your password was removed",
		change:  "The password of your account at {host} was removed on {at}{where}. You now sign in without it.",
		advice:  replaceNow,
		button:  setPassword,
		page:    forgottenPage,
	},
	{
		kind:    NewSignIn,
		subject: "New sign-in to your account",
		change:  "Your account at {host} was signed in to from a new browser on {at}{where}.",
		advice:  "If this was not you, sign out that browser and change your password.",
		button:  "Check your sign-ins",
		page:    "/settings/security",
	},
	{
		kind:    PasskeyAdded,
		subject: "A passkey was added to your account",
		change:  "The passkey {name} was added to your account at {host} on {at}{where}.",
	},
	{
		kind:    PasskeyRemoved,
		subject: "A passkey was removed from your account",
		change:  "A passkey was removed from your account at {host} on {at}{where}.",
	},
	{
		kind:    PasskeyBlocked,
		subject: "A passkey of your account was blocked",
		change: "The passkey {name} of your account at {host} was used on {at}{where} in a way that suggests that it " +
			"was copied. It no longer works.",
		advice: "Remove it and add a new one.",
	},
	{
		kind:    AuthenticatorAdded,
		subject: "An authenticator app was set up",
		change:  "An authenticator app was set up for your account at {host} on {at}{where}.",
	},
	{
		kind:    AuthenticatorRemoved,
		subject: "Your authenticator app was removed",
		change: "The authenticator app of your account at {host} was removed on {at}{where}. Its recovery codes no " +
			"longer work.",
	},
	{
		kind:    RecoveryCodesReplaced,
		subject: "Your recovery codes were replaced",
		change: "The recovery codes of your account at {host} were replaced on {at}{where}. The earlier ones no " +
			"longer work.",
	},
	{
		kind:    RecoveryCodeUsed,
		subject: "A recovery code was used",
		change: "A recovery code of your account at {host} was used to sign in on {at}{where}, in place of the " +
			"authenticator app. It no longer works.",
		advice: "If this was not you, another person has your password and your recovery codes: replace both now.",
	},
	{
		kind:    AccountLinked,
		subject: "An account was linked to yours",
		change: "An account of another sign-in service was linked to your account at {host} on {at}{where}. Its " +
			"owner can now sign in as you.",
	},
	{
		kind:    AccountUnlinked,
		subject: "A linked account was removed",
		change: "The linked account of another sign-in service was removed from your account at {host} on " +
			"{at}{where}. It can no longer be used to sign in.",
	},
	{
		kind:    TokenCreated,
		subject: "A personal access token was created",
		change: "The personal access token {name} for the workspace {workspace} was created with your account at " +
			"{host} on {at}{where}. Anyone who has its value can act as you there.",
		advice: checkTokens,
		button: "Manage your tokens",
	},
}

// write returns the letter of a message.
func (n note) write(s site, m Message) letter {
	d, advice := m.Data, or(n.advice, checkSignIn)
	if d.Operator {
		advice = operatorAdvice(s)
	}
	fill := strings.NewReplacer(
		"{host}", s.host(), "{at}", moment(d.At), "{where}", where(d), "{name}", d.Name, "{workspace}", d.Workspace)
	return letter{
		Subject: n.subject,
		Lines:   []string{fill.Replace(n.change), advice},
		Button:  or(n.button, openSignIn),
		Link:    s.page(or(n.page, d.Path)),
	}
}
