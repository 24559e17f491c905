// Package mail queues e-mails in the transaction of their cause and sends them by SMTP.
//
//	message.go    Message, Kind, Data: what other packages fill in; the table of audit actions with a mail
//	letters.json  the texts of each kind
//	letters.go    the plain text and HTML of a letter
//	queue.go      Queue.Add: the job of a message, in the caller's transaction; Worker: sends the jobs, and retries
//	smtp.go       the mail server's URL and the Sender
//
// Its invariants:
//
//	M1 A message is sent if and only if the transaction that queued it was committed.
//	M2 A message has one Message-ID, so that a repeated delivery is recognised as such.
//	M3 A message is not sent after its end: an expired link is useless to its recipient.
//	M4 Stored messages are sealed with the deployment's keys and deleted soon after they were sent.
//	M5 No text of another person or program adds a header or changes the direction of writing.
//
// store/postgres queues messages, and package app runs the worker.
package mail

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A Kind is the type of a message. It is a label of a metric and a value in account.unwanted_mails.
type Kind string

// The kinds.
const (
	Invitation          Kind = "invitation"
	Reset               Kind = "password_reset"
	PasswordChanged     Kind = "password_changed"
	PasswordRemoved     Kind = "password_removed"
	NewSignIn           Kind = "new_sign_in"
	ConnectionApproved  Kind = "connection_approved"
	ConnectionReplayed  Kind = "connection_replayed"
	TokenExpiring       Kind = "token_expiring"
	TokenRevoked        Kind = "token_revoked"
	Removed             Kind = "removed_from_workspace"
	PermissionsChanged  Kind = "permissions_changed"
	AccessRequested     Kind = "access_requested"
	AccountDeleted      Kind = "account_deleted"
	WebhookDisabled     Kind = "webhook_disabled"
	WebhookAdded        Kind = "webhook_added"
	WebhookPersonal     Kind = "webhook_personal_data"
	EmailChangeOld      Kind = "email_change_old"
	EmailChangeNew      Kind = "email_change_new"
	EmailTaken          Kind = "email_taken"
	EmailChanged        Kind = "email_changed"
	AddressProven       Kind = "address_proven"
	MemberAddressProven Kind = "member_address_proven"
	WrongCodes          Kind = "wrong_codes"

	PasskeyAdded          Kind = "passkey_added"
	PasskeyRemoved        Kind = "passkey_removed"
	PasskeyBlocked        Kind = "passkey_blocked"
	AuthenticatorAdded    Kind = "authenticator_added"
	AuthenticatorRemoved  Kind = "authenticator_removed"
	RecoveryCodesReplaced Kind = "recovery_codes_replaced"
	RecoveryCodeUsed      Kind = "recovery_code_used"
	AccountLinked         Kind = "account_linked"
	AccountUnlinked       Kind = "account_unlinked"
	TokenCreated          Kind = "token_created"
)

// Paths of the pages that links of letters.json lead to.
const (
	ResetPath       = "/login/reset"
	EmailChangePath = "/email"
)

// A Message is one e-mail to one person.
type Message struct {
	ID      uuid.UUID `json:"id"` // set by Queue.Add; the Message-ID derives from it
	Kind    Kind      `json:"kind"`
	Address string    `json:"address"`        // of the recipient
	Name    string    `json:"name,omitempty"` // of the recipient, or ""
	Data    Data      `json:"data"`
	// Token is the secret of the link, for Invitation, Reset, EmailChangeOld and EmailChangeNew.
	Token credential.Secret `json:"-"`
	// Expires is the end of the link, or the zero time for the end of the kind. The message is not sent later (M3).
	Expires time.Time `json:"expires"`
}

// Data are what the text mentions. Each kind uses the fields that its letter names.
type Data struct {
	At          time.Time `json:"at,omitzero"`
	Person      string    `json:"person,omitempty"` // who did it
	Email       string    `json:"email,omitempty"`  // of that person, or a new address
	Workspace   string    `json:"workspace,omitempty"`
	Application string    `json:"application,omitempty"`
	Token       string    `json:"token,omitempty"`    // name of a personal access token
	Name        string    `json:"name,omitempty"`     // of what the message is about, such as a passkey
	Operator    bool      `json:"operator,omitempty"` // an operator did it
	Device      string    `json:"device,omitempty"`
	Network     string    `json:"network,omitempty"`     // IP address of a browser
	Permissions []string  `json:"permissions,omitempty"` // titles
	Ends        time.Time `json:"ends,omitzero"`         // of a token or a link
	Path        string    `json:"path,omitempty"`        // local path of the link, if the kind does not determine it

	LLMIntegration bool   `json:"llm_integration,omitempty"` // a request to switch it on
	Policy         bool   `json:"policy,omitempty"`          // a request to change the connector policy
	Host           string `json:"host,omitempty"`            // of a webhook endpoint
	Gone           bool   `json:"gone,omitempty"`            // a webhook endpoint answered 410
	Personal       bool   `json:"personal,omitempty"`        // a webhook endpoint gets personal data
	PasswordSet    bool   `json:"password_set,omitempty"`    // the change also set a password
}

// cleaned returns the data without characters that end a line, are invisible or change the direction of writing (M5).
func (d Data) cleaned() Data {
	d.Person, d.Workspace, d.Application = clean(d.Person), clean(d.Workspace), clean(d.Application)
	d.Token, d.Device, d.Network = clean(d.Token), clean(d.Device), clean(d.Network)
	d.Email, d.Name = clean(d.Email), clean(d.Name)
	d.Host = clean(d.Host)
	permissions := make([]string, len(d.Permissions))
	for i, p := range d.Permissions {
		permissions[i] = clean(p)
	}
	d.Permissions = permissions
	return d
}

// maxWords bounds a text of another person or program, in characters.
const maxWords = 200

// clean replaces control and format characters with spaces, but for the joiners of some scripts, and shortens the text.
func clean(text string) string {
	text = strings.ToValidUTF8(text, "?")
	text = strings.Map(func(r rune) rune {
		joiner := r == '\u200c' || r == '\u200d'
		if !joiner && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, text)
	if long := []rune(text); len(long) > maxWords {
		text = string(long[:maxWords]) + "…"
	}
	return strings.Join(strings.Fields(text), " ")
}

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
