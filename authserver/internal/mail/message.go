// Package mail queues e-mails in the transaction of their cause and sends them by SMTP.
//
//	letters.json  the kinds: the audit actions that they are about, and their links
//	languages     the texts of the kinds, a file for each language
//	message.go    Message, Kind, Data: what other packages fill in
//	letter.go     the plain text and HTML of a letter
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
	"cmp"
	_ "embed"
	"encoding/json"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/page/brand"
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
	NewNetwork          Kind = "new_network"
	ConnectionEnding    Kind = "connection_ending"
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
	// Language is one of Languages, or "". Zone is the time zone of the recipient, such as Europe/London, or "".
	Language string `json:"language,omitempty"`
	Zone     string `json:"zone,omitempty"`
	Data     Data   `json:"data"`
	// Token is the secret of the link, for Invitation, Reset, EmailChangeOld and EmailChangeNew.
	Token credential.Secret `json:"-"`
	// Expires is the end of the link, or the zero time for the end of the kind. The message is not sent later (M3).
	Expires time.Time `json:"expires"`
}

// A Recipient is a user who gets a message.
type Recipient struct {
	Address, Name  string
	Language, Zone string // as in Message
}

// To returns the message with its recipient.
func (m Message) To(r Recipient) Message {
	m.Address, m.Name, m.Language, m.Zone = r.Address, r.Name, r.Language, r.Zone
	return m
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
	Network     string    `json:"network,omitempty"`     // IP address of a browser, or the network of an app
	Many        bool      `json:"many,omitempty"`        // it is one of many networks of a day
	Permissions []string  `json:"permissions,omitempty"` // titles
	Ends        time.Time `json:"ends,omitzero"`         // of a token, a connection or a link
	Path        string    `json:"path,omitempty"`        // local path of the link, if the kind does not determine it
	// Home is the proven website of the application (consent.ProvenHome), to which the link leads instead, or "".
	Home string `json:"home,omitempty"`

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
	d.Host, d.Home = clean(d.Host), clean(d.Home)
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
	text = strings.Join(strings.Fields(text), " ")
	for _, l := range languages() {
		text = brand.Apart(text, l.Contact)
	}
	return text
}

// A Notice is the mail about a change (contract, section 7).
type Notice struct {
	Mail Kind   `json:"kind"`
	Page string // local path of the page that shows the change
	// ByEvent means that the store queues the mail with the event, to the user that the event concerns. The other mails
	// depend on more than the event, and the code of the change queues them.
	ByEvent bool `json:"by_event"`
}

// Notices returns the mails about changes, by their actions. Callers must not modify it.
func Notices() map[audit.Action]Notice { return notices() }

var notices = sync.OnceValue(func() map[audit.Action]Notice {
	all := map[audit.Action]Notice{}
	for _, k := range kinds() {
		for _, action := range k.Actions {
			all[action] = k.Notice
		}
	}
	return all
})

// A kind describes the messages of one Kind. Its texts are in the languages.
type kind struct {
	Notice         // of the Actions
	Choice  string // as Kind.Choice returns it
	Actions []audit.Action
	Days    int      // number of days after which a queued message is no longer sent; 2 if 0
	Path    text     // local path of the link
	Details []string // names of details, which the letter shows below its lines
}

// ResetLife is how long a link to set a new password works.
const ResetLife = 30 * time.Minute

// life is how long after it was queued a message is still sent.
func (k kind) life() time.Duration {
	if k.Mail == Reset {
		return ResetLife
	}
	return time.Duration(cmp.Or(k.Days, 2)) * 24 * time.Hour
}

//go:embed letters.json
var lettersJSON []byte

// kinds returns the table of all messages. It is read once.
var kinds = sync.OnceValue(func() (all []kind) {
	if err := json.Unmarshal(lettersJSON, &all); err != nil {
		panic("letters.json: " + err.Error())
	}
	return all
})

// kindOf returns the description of a kind, and false for one that this version does not know.
func kindOf(name Kind) (kind, bool) {
	for _, k := range kinds() {
		if k.Mail == name {
			return k, true
		}
	}
	return kind{}, false
}

// Kinds returns all kinds.
func Kinds() (all []Kind) {
	for _, k := range kinds() {
		all = append(all, k.Mail)
	}
	return all
}

// OptionalKinds returns the kinds that are not about security.
func OptionalKinds() (optional []Kind) {
	for _, k := range kinds() {
		if k.Choice != "" {
			optional = append(optional, k.Mail)
		}
	}
	return optional
}

// Choice is how Settings → Security offers to turn the kind off, or "" if recipients cannot.
func (k Kind) Choice() string {
	known, _ := kindOf(k)
	return known.Choice
}

// Optional reports whether recipients can turn the kind off.
func (k Kind) Optional() bool { return k.Choice() != "" }
