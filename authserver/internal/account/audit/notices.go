package audit

import (
	"slices"

	"github.com/almonerhq/almoner/authserver/internal/account/mail"
)

// A Notice is the mail about a change (contract, section 7).
type Notice struct {
	Action Action
	Mail   mail.Kind
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
	{Action: SignInSucceeded, Mail: mail.NewSignIn, Page: securityPage}, // from a new browser
	{Action: IdentityLinked, Mail: mail.AccountLinked, Page: linkedPage, ByEvent: true},
	{Action: IdentityUnlinked, Mail: mail.AccountUnlinked, Page: linkedPage, ByEvent: true},
	{Action: PasskeyAdded, Mail: mail.PasskeyAdded, Page: passkeysPage, ByEvent: true},
	{Action: PasskeyRemoved, Mail: mail.PasskeyRemoved, Page: passkeysPage, ByEvent: true},
	{Action: PasskeyStopped, Mail: mail.PasskeyBlocked, Page: passkeysPage, ByEvent: true},
	{Action: AuthenticatorAdded, Mail: mail.AuthenticatorAdded, Page: appPage, ByEvent: true},
	{Action: AuthenticatorRemoved, Mail: mail.AuthenticatorRemoved, Page: appPage, ByEvent: true},
	{Action: RecoveryCodesReplaced, Mail: mail.RecoveryCodesReplaced, Page: appPage, ByEvent: true},
	{Action: RecoveryCodeUsed, Mail: mail.RecoveryCodeUsed, Page: appPage, ByEvent: true},
	{Action: UserPasswordSet, Mail: mail.PasswordChanged, Page: securityPage},
	{Action: UserPasswordChanged, Mail: mail.PasswordChanged, Page: securityPage},
	{Action: UserPasswordReset, Mail: mail.PasswordChanged, Page: securityPage},
	{Action: UserPasswordRemoved, Mail: mail.PasswordRemoved, Page: securityPage},
	{Action: UserResetRequested, Mail: mail.Reset, Page: securityPage},
	{Action: UserEmailRequested, Mail: mail.EmailChangeOld, Page: userPage}, // and mail.EmailChangeNew
	{Action: UserEmailChanged, Mail: mail.EmailChanged, Page: userPage},     // to both addresses
	{Action: UserDeleted, Mail: mail.AccountDeleted},                        // nothing is left to show
	{Action: TokenCreated, Mail: mail.TokenCreated, Page: ownTokensPage, ByEvent: true},
	{Action: GrantConsented, Mail: mail.ConnectionApproved, Page: appsPage},
	{Action: GrantRevoked, Mail: mail.ConnectionReplayed, Page: appsPage}, // after a replay
	{Action: MemberPermissionsChanged, Mail: mail.PermissionsChanged, Page: userPage},
	{Action: MemberRemoved, Mail: mail.Removed, Page: userPage},
	{Action: InvitationCreated, Mail: mail.Invitation, Page: userPage},
	{Action: InvitationRenewed, Mail: mail.Invitation, Page: userPage},
	{Action: AccessRequested, Mail: mail.AccessRequested, Page: "/settings/members"},
	{Action: WebhookAdded, Mail: mail.WebhookAdded, Page: "/settings/webhooks"},
	{Action: WebhookDisabled, Mail: mail.WebhookDisabled, Page: developersPage}, // by the service
}

// A Silence is why actions have no mail.
type Silence struct {
	Why     string
	Actions []Action
}

var silences = []Silence{
	{
		Why: "A failed attempt changes nothing, and a mail for each would let strangers fill a mailbox. It is on the " +
			"page " + securityPage + ".",
		Actions: []Action{SignInFailed, SignInRefused, CodeFailed, GrantRefused},
	},
	{
		Why: "It takes access away, and gives none to the person who did it.",
		Actions: []Action{
			SignInEnded, SignInOthersEnded, TokenRevoked, GrantNarrowed, UserEmailStopped, InvitationWithdrawn,
			InvitationDeclined, MemberLeft, WebhookDeleted, ClientDeleted, UserDisabled,
		},
	},
	{
		Why:     "It proves again who is signed in, with a factor that the user has.",
		Actions: []Action{SignInProved},
	},
	{
		Why:     "It changes no access: only a name, or which optional mails are sent.",
		Actions: []Action{UserRenamed, UserMailsChanged},
	},
	{
		Why: "It concerns a workspace and no person's sign-in. Its members see it in the audit log, and connections " +
			"still need the approval of each user.",
		Actions: []Action{
			ConnectorPolicyChanged, ClientRegistered, ClientChanged, ClientSecretReplaced, ConnectionsExported,
			AuditExported, FormExported, ModuleChanged, FeatureChanged, SecondFactorChanged, MemberAdded,
			WebhookChanged, WebhookEnabled, WebhookSecretReplaced,
		},
	},
	{
		Why:     "It deletes content of a workspace. Who may do that is on the page of members.",
		Actions: []Action{ProgrammeErased, FormErased, SubmissionErased, SupporterErased},
	},
	{
		Why: "An operator of the deployment did it, or the service by itself.",
		Actions: []Action{
			OrganisationAdded, WorkspaceAdded, UserAdded, UserEnabled, KeyRotated, KeyPromoted, KeyResealed, KeyRemoved,
			RetentionRun,
		},
	},
}

// NoticeOf returns the mail about an action, or false if there is none.
func NoticeOf(a Action) (Notice, bool) {
	for _, n := range notices {
		if n.Action == a {
			return n, true
		}
	}
	return Notice{}, false
}

// Notices returns the mails about changes.
func Notices() []Notice { return slices.Clone(notices) }

// Silences returns the reasons why the other actions have no mail.
func Silences() []Silence { return slices.Clone(silences) }
