package audit

import "slices"

// A Description says what an action means. The pages, authserver/AUDIT.md and the tests read it.
type Description struct {
	Action Action
	// Text describes the event on a page. The page replaces {name} with a detail of the event (endpoint/settings). If
	// the detail is empty, the space before it is removed.
	Text     string
	Meaning  string // for readers of the export, where Text is not enough
	Alarming bool   // the event may be an attack
}

var descriptions = []Description{
	{Action: SignInSucceeded, Text: "Signed in {device}"},
	{Action: SignInFailed, Text: "Sign-in failed: wrong password", Alarming: true},
	{Action: SignInRefused, Text: "A sign-in with the identity provider was refused"},
	{
		Action:  SignInProved,
		Text:    "Confirmed identity",
		Meaning: "A signed-in user authenticated again, by the method in `method`.",
	},
	{
		Action:  SignInEnded,
		Text:    "Signed out {browser}",
		Meaning: "`own` is true if the user signed out of the browser that sent the request.",
	},
	{Action: SignInOthersEnded, Text: "Signed out all other browsers"},
	{Action: IdentityLinked, Text: "Linked an account at the identity provider by its verified e-mail address"},
	{Action: IdentityUnlinked, Text: "Unlinked the account at the identity provider"},
	{Action: PasskeyAdded, Text: "Added the passkey {name}"},
	{Action: PasskeyRemoved, Text: "Removed a passkey"},
	{
		Action:   PasskeyStopped,
		Text:     "The passkey {name} was blocked because it may have been copied",
		Alarming: true,
	},
	{
		Action:   CodeFailed,
		Text:     "Sign-in failed: wrong code after the right password",
		Meaning:  "A wrong code of the authenticator app, or a wrong recovery code, after the right password.",
		Alarming: true,
	},
	{
		Action:  AuthenticatorAdded,
		Text:    "Set up an authenticator app",
		Meaning: "From then on, a sign-in with the password needs a code of the app or a recovery code.",
	},
	{Action: AuthenticatorRemoved, Text: "Removed the authenticator app"},
	{Action: RecoveryCodesReplaced, Text: "Replaced the recovery codes"},
	{
		Action:  RecoveryCodeUsed,
		Text:    "Used a recovery code",
		Meaning: "A recovery code replaced the code of the authenticator app. `left` counts the unused ones.",
	},

	{
		Action:  GrantConsented,
		Text:    "Approved access for {application} {person}",
		Meaning: "A user gave an application the permissions in `permissions`.",
	},
	{
		Action: GrantRevoked,
		Text:   "{revocation}",
		Meaning: "The access of an application ended, for the reason in `reason`. `ending` describes the request " +
			"that presented a used code or token. `unused` is true for an approval whose code was not exchanged.",
	},
	{
		Action: GrantRefused,
		Text:   "Refused a token request from {application} {person}. {description}",
		Meaning: "The response had the error in `error`, for the reason in `reason`. The same refusal is recorded " +
			"once an hour.",
	},
	{
		Action:  GrantNarrowed,
		Text:    "The connector policy reduced the access of {application} {person}{reduction}",
		Meaning: "The details have the permissions and the end before and after.",
	},
	{
		Action:  ConnectorPolicyChanged,
		Text:    "Changed the connector policy: {policy}",
		Meaning: "The details have the policy before and after, and the number of connections it ended.",
	},
	{Action: TokenCreated, Text: "Created the personal access token {name}"},
	{
		Action:  TokenRevoked,
		Text:    "{token}",
		Meaning: "A personal access token was revoked, for the reason in `reason`.",
	},
	{Action: ClientRegistered, Text: "Registered the application {application}"},
	{
		Action:  ClientChanged,
		Text:    "Changed the application {application}",
		Meaning: "An operator changed a registered application. The details name the members that changed.",
	},
	{Action: ClientSecretReplaced, Text: "Replaced the secret of the application {application}"},
	{Action: ClientDeleted, Text: "Deleted the application {application}"},
	{Action: AuditExported, Text: "Exported the audit log"},
	{Action: ConnectionsExported, Text: "Exported the connection log"},

	{Action: OrganisationAdded, Text: "Created the organisation"},
	{Action: WorkspaceAdded, Text: "Created the workspace"},
	{Action: ModuleChanged, Text: "Changed the module {module}: {changes}"},
	{Action: FeatureChanged, Text: "Switched {feature} {state}"},
	{
		Action:  SecondFactorChanged,
		Text:    "Switched {state} the second-factor requirement for members",
		Meaning: "With `state` on, members need a passkey or an authenticator app at the pages of the workspace.",
	},
	{
		Action: MemberAdded,
		Text:   "{joined}. Permissions: {permissions}",
		Meaning: "A user became a member. With `invitation` and `invited_by` in the details, the user accepted an " +
			"invitation.",
	},
	{Action: MemberPermissionsChanged, Text: "Changed the permissions of a member {person} to: {permissions}"},
	{
		Action: MemberRemoved,
		Text:   "Removed a member {person} and revoked their tokens and connections in the workspace",
	},
	{Action: MemberLeft, Text: "Left the workspace, which revoked their tokens and connections in it"},
	{
		Action:  InvitationCreated,
		Text:    "Invited a person. Permissions: {permissions}",
		Meaning: "The log has no address of a person who is not a user: `subject` names the invitation.",
	},
	{
		Action:  InvitationRenewed,
		Text:    "Renewed an invitation. Permissions: {permissions}",
		Meaning: "The invitation got a new link and 7 more days. The earlier link no longer works.",
	},
	{Action: InvitationWithdrawn, Text: "Withdrew an invitation"},
	{Action: InvitationDeclined, Text: "Declined an invitation"},
	{
		Action: AccessRequested,
		Text:   "Asked the administrators for access. Permissions: {permissions}",
		Meaning: "`member` tells whether the user was a member, `llm_integration` whether the user asked to switch " +
			"it on, `connector_policy` whether the user asked to change the policy. `recipients` counts the members " +
			"who got the e-mail.",
	},
	{Action: UserAdded, Text: "Created the account"},
	{Action: UserRenamed, Text: "Changed their name"},
	{Action: UserPasswordSet, Text: "Set a new password and signed out all browsers"},
	{
		Action: UserPasswordChanged,
		Text:   "Changed the password",
		Meaning: "The user changed the password in the settings. `others_ended` tells whether other browsers " +
			"were signed out.",
	},
	{
		Action:  UserPasswordReset,
		Text:    "Set a new password with a link and signed out all browsers",
		Meaning: "`others_removed` tells whether passkeys and linked accounts were removed, each with an event.",
	},
	{Action: UserPasswordRemoved, Text: "Removed the password"},
	{
		Action:  UserResetRequested,
		Text:    "A link to set a new password was requested",
		Meaning: "By a person who was not signed in, or by an operator.",
	},
	{Action: UserMailsChanged, Text: "Changed which mails are sent"},
	{Action: UserDisabled, Text: "Disabled the account"},
	{Action: UserEnabled, Text: "Enabled the account"},
	{
		Action:  UserEmailRequested,
		Text:    "Requested another e-mail address",
		Meaning: "The address changes when links to both addresses were confirmed. The log has neither address.",
	},
	{
		Action:   UserEmailStopped,
		Text:     "Stopped the change of the e-mail address",
		Meaning:  "`by` says whether the link to the `old` or to the `new` address was used.",
		Alarming: true,
	},
	{
		Action:  UserEmailChanged,
		Text:    "Changed the e-mail address",
		Meaning: "After both addresses were confirmed, or by an operator.",
	},
	{
		Action: UserEmailProven,
		Text:   "Confirmed the e-mail address {ended}",
		Meaning: "`by` says what proved that the address is the user's. Unless an operator confirmed it, everything " +
			"that gave access to the account ended first. `methods`, `tokens` and `grants` count what ended in the " +
			"same transaction; `more` is true if other tokens or grants are ended in the background.",
	},
	{
		Action: UserDeleted,
		Text:   "Deleted the account",
		Meaning: "The name, the address and all access of the user ended. The details count the workspaces and " +
			"tokens, and the grants that ended in the same transaction. `more` is true if other grants or tokens are " +
			"ended in the background.",
	},

	{Action: ProgrammeErased, Text: "Deleted a draft of a programme"},
	{
		Action:  FormErased,
		Text:    "Deleted a form with its submissions",
		Meaning: "`submissions` counts the submissions that were deleted.",
	},
	{
		Action:  FormExported,
		Text:    "Exported the submissions of a form",
		Meaning: "`format` is `csv` or `jsonl`. Recorded when the export begins.",
	},
	{Action: SubmissionErased, Text: "Deleted a submission"},
	{
		Action:  SupporterErased,
		Text:    "Erased a supporter and all that they sent",
		Meaning: "`submissions` counts the submissions that were deleted.",
	},

	{
		Action: WebhookAdded,
		Text:   "Added a webhook endpoint at {host}",
		Meaning: "The log has the host of the endpoint and not its URL, which may contain a secret. `personal_data` " +
			"is true if its events are sent with personal data.",
	},
	{
		Action:  WebhookChanged,
		Text:    "Changed a webhook endpoint at {host}: its events are sent {personal}",
		Meaning: "`personal_data` says whether its events are sent with personal data.",
	},
	{Action: WebhookDeleted, Text: "Deleted a webhook endpoint at {host}"},
	{Action: WebhookEnabled, Text: "Enabled a webhook endpoint at {host}"},
	{
		Action:  WebhookSecretReplaced,
		Text:    "Replaced the secret of a webhook endpoint at {host}",
		Meaning: "Events are also signed with the previous secret for 24 hours, unless the request ended it.",
	},
	{
		Action: WebhookDisabled,
		Text:   "Disabled a webhook endpoint at {host} {stopped}",
		Meaning: "`reason` is `user`, `failing` (it accepted nothing for three days), `gone` (it answered 410) or " +
			"`permission` (its user lost account:api:access, or the credential that added it has ended).",
	},

	{Action: KeyRotated, Text: "The next signing key replaced the current one"},
	{Action: KeyPromoted, Text: "The next signing key replaced a current one that was removed"},
	{Action: KeyResealed, Text: "A signing key was encrypted again with the newest master key"},
	{Action: KeyRemoved, Text: "A signing key was removed"},

	{
		Action:  RetentionRun,
		Text:    "An operator deleted records that were no longer needed",
		Meaning: "`deleted` counts them by kind. The hourly deletions of a service are in its log and metrics instead.",
	},
}

// Descriptions returns the description of every action.
func Descriptions() []Description { return slices.Clone(descriptions) }

// Describe returns the description of an action, and false for one that this version does not know.
func Describe(a Action) (Description, bool) {
	for _, d := range descriptions {
		if d.Action == a {
			return d, true
		}
	}
	return Description{}, false
}
