package mail

import (
	"slices"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// A Notice is the mail about a change (contract, section 7).
type Notice struct {
	Action audit.Action
	Mail   Kind
	Page   string // local path of the page that shows the change
	// ByEvent means that the store queues the mail with the event, to the user that the event concerns. The other mails
	// depend on more than the event, and the code of the change queues them.
	ByEvent bool
}

const (
	securityPage   = "/settings/security"
	appPage        = "/settings/security/authenticator"
	passkeysPage   = "/settings/passkeys"
	linkedPage     = "/settings/provider"
	ownTokensPage  = "/settings/security#tokens"
	appsPage       = "/settings/apps"
	userPage       = "/settings/user"
	developersPage = "/settings/developers"
)

var notices = []Notice{
	{Action: audit.SignInSucceeded, Mail: NewSignIn, Page: securityPage}, // from a new browser
	{Action: audit.IdentityLinked, Mail: AccountLinked, Page: linkedPage, ByEvent: true},
	{Action: audit.IdentityUnlinked, Mail: AccountUnlinked, Page: linkedPage, ByEvent: true},
	{Action: audit.PasskeyAdded, Mail: PasskeyAdded, Page: passkeysPage, ByEvent: true},
	{Action: audit.PasskeyRemoved, Mail: PasskeyRemoved, Page: passkeysPage, ByEvent: true},
	{Action: audit.PasskeyStopped, Mail: PasskeyBlocked, Page: passkeysPage, ByEvent: true},
	{Action: audit.AuthenticatorAdded, Mail: AuthenticatorAdded, Page: appPage, ByEvent: true},
	{Action: audit.AuthenticatorRemoved, Mail: AuthenticatorRemoved, Page: appPage, ByEvent: true},
	{Action: audit.RecoveryCodesReplaced, Mail: RecoveryCodesReplaced, Page: appPage, ByEvent: true},
	{Action: audit.RecoveryCodeUsed, Mail: RecoveryCodeUsed, Page: appPage, ByEvent: true},
	{Action: audit.UserPasswordSet, Mail: PasswordChanged, Page: securityPage},
	{Action: audit.UserPasswordChanged, Mail: PasswordChanged, Page: securityPage},
	{Action: audit.UserPasswordReset, Mail: PasswordChanged, Page: securityPage},
	{Action: audit.UserPasswordRemoved, Mail: PasswordRemoved, Page: securityPage},
	{Action: audit.UserResetRequested, Mail: Reset, Page: securityPage},
	{Action: audit.UserEmailRequested, Mail: EmailChangeOld, Page: userPage}, // and EmailChangeNew
	{Action: audit.UserEmailChanged, Mail: EmailChanged, Page: userPage},     // to both addresses
	// if it ended what the account had; and MemberAddressProven to the members who can manage members of the user's
	// workspaces
	{Action: audit.UserEmailProven, Mail: AddressProven, Page: securityPage},
	{Action: audit.CodeFailed, Mail: WrongCodes, Page: securityPage}, // after several within a day
	{Action: audit.UserDeleted, Mail: AccountDeleted},                // nothing is left to show
	{Action: audit.TokenCreated, Mail: TokenCreated, Page: ownTokensPage, ByEvent: true},
	{Action: audit.TokenRevoked, Mail: TokenRevoked, Page: ownTokensPage}, // if its value was sent for revocation
	{Action: audit.GrantConsented, Mail: ConnectionApproved, Page: appsPage},
	{Action: audit.GrantRevoked, Mail: ConnectionReplayed, Page: appsPage}, // after a replay
	{Action: audit.MemberPermissionsChanged, Mail: PermissionsChanged, Page: userPage},
	{Action: audit.MemberRemoved, Mail: Removed, Page: userPage},
	{Action: audit.InvitationCreated, Mail: Invitation, Page: userPage},
	{Action: audit.InvitationRenewed, Mail: Invitation, Page: userPage},
	{Action: audit.AccessRequested, Mail: AccessRequested, Page: "/settings/members"},
	{Action: audit.WebhookAdded, Mail: WebhookAdded, Page: "/settings/webhooks"},
	{Action: audit.WebhookChanged, Mail: WebhookPersonal, Page: "/settings/webhooks"}, // if it gets personal data
	{Action: audit.WebhookDisabled, Mail: WebhookDisabled, Page: developersPage},      // by the service
}

// Unmailed are actions without a mail, and the reason.
type Unmailed struct {
	Reason  string
	Actions []audit.Action
}

var unmailed = []Unmailed{
	{
		Reason: "A failed attempt changes nothing, and a mail for each would let strangers fill a mailbox. It is on " +
			"the page " + securityPage + ".",
		Actions: []audit.Action{
			audit.SignInFailed, audit.SignInRefused, audit.GrantRefused,
		},
	},
	{
		Reason: "It takes access away, and gives none to the person who did it.",
		Actions: []audit.Action{
			audit.SignInEnded, audit.SignInOthersEnded, audit.GrantNarrowed,
			audit.UserEmailStopped, audit.InvitationWithdrawn, audit.InvitationDeclined, audit.MemberLeft,
			audit.WebhookDeleted, audit.ClientDeleted, audit.UserDisabled,
		},
	},
	{
		Reason:  "It proves again who is signed in, with a factor that the user has.",
		Actions: []audit.Action{audit.SignInProved},
	},
	{
		Reason:  "It changes no access: only a name, or which optional mails are sent.",
		Actions: []audit.Action{audit.UserRenamed, audit.UserMailsChanged},
	},
	{
		Reason: "It concerns a workspace and no person's sign-in. Its members see it in the audit log, and " +
			"connections still need the approval of each user.",
		Actions: []audit.Action{
			audit.ConnectorPolicyChanged, audit.ClientRegistered, audit.ClientChanged, audit.ClientSecretReplaced,
			audit.ConnectionsExported, audit.AuditExported, audit.FormExported, audit.ModuleChanged,
			audit.FeatureChanged, audit.SecondFactorChanged, audit.MemberAdded,
			audit.WebhookEnabled, audit.WebhookSecretReplaced,
		},
	},
	{
		Reason: "It deletes content of a workspace. Who may do that is on the page of members.",
		Actions: []audit.Action{
			audit.ProgrammeErased, audit.FormErased, audit.SubmissionErased, audit.SupporterErased,
		},
	},
	{
		Reason: "An operator of the deployment did it, or the service by itself.",
		Actions: []audit.Action{
			audit.OrganisationAdded, audit.WorkspaceAdded, audit.UserAdded, audit.UserEnabled, audit.KeyRotated,
			audit.KeyPromoted, audit.KeyResealed, audit.KeyRemoved, audit.RetentionRun,
		},
	},
}

// NoticeOf returns the mail about an action, or false if there is none.
func NoticeOf(a audit.Action) (Notice, bool) {
	for _, n := range notices {
		if n.Action == a {
			return n, true
		}
	}
	return Notice{}, false
}

// Notices returns the mails about changes.
func Notices() []Notice { return slices.Clone(notices) }

// UnmailedActions returns the actions that have no mail.
func UnmailedActions() []Unmailed { return slices.Clone(unmailed) }
