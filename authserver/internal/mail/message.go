// Package mail queues e-mails in the transaction of their cause and sends them by SMTP.
//
//	message.go  Message, Kind, Data: what other packages fill in; the plain text and HTML of a letter
//	letters.go  the text of each kind, or in accountletters.go
//	notes.go    the letters that are data, each about one change of an account
//	notices.go  the table of audit actions: the mail about each, or why there is none
//	queue.go    Queue.Add: the job of a message, in the caller's transaction
//	worker.go   Worker: sends the jobs, and retries; the job that queues the mails that depend on the time
//	smtp.go     the mail server's URL and the Sender
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
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

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

// A Message is one e-mail to one person.
type Message struct {
	ID      uuid.UUID // set by Queue.Add; the Message-ID derives from it
	Kind    Kind
	Address string // of the recipient
	Name    string // of the recipient, or ""
	Data    Data
	// Token is the secret of the link, for Invitation, Reset, EmailChangeOld and EmailChangeNew.
	Token credential.Secret
	// Expires is the end of the link, or the zero time for the end of the kind. The message is not sent later (M3).
	Expires time.Time
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

//go:embed letter.html
var letterHTML string

// letterPage is the HTML of every letter. It loads nothing: no image, no style sheet, no tracking.
var letterPage = template.Must(template.New("letter").Parse(letterHTML))

// A rendered message is ready to send.
type rendered struct {
	Subject string
	Text    string
	HTML    string
}

// render writes a message. Its data are cleaned first (M5).
func (s site) render(m Message) (rendered, error) {
	k, ok := kindOf(m.Kind)
	if !ok {
		return rendered{}, fmt.Errorf("there is no message of the kind %q", m.Kind)
	}
	m.Data, m.Name = m.Data.cleaned(), clean(m.Name)
	l := k.write(s, m)
	if k.optional {
		l.Unwanted = s.page("/settings/security")
	}
	var page bytes.Buffer
	colour, _ := s.brand.Colour()
	if err := letterPage.Execute(&page, map[string]any{
		"Letter": l,
		"Name":   m.Name,
		"Place":  s.place(),
		"Colour": colour.String(), // white text on it is readable: the setting is checked
	}); err != nil {
		return rendered{}, fmt.Errorf("render a message: %w", err)
	}
	return rendered{Subject: clean(l.Subject), Text: l.text(m.Name, s.place()), HTML: page.String()}, nil
}

// place names the deployment at the end of a message.
func (s site) place() string { return s.brand.Name() + " at " + s.host() }

// text returns the plain text of a letter.
func (l letter) text(name, place string) string {
	var out strings.Builder
	paragraph := func(text string) { _, _ = out.WriteString(text + "\n\n") } // never fails
	if name != "" {
		paragraph("Hello " + name + ",")
	}
	for _, line := range l.Lines {
		paragraph(line)
	}
	if l.Link != "" {
		paragraph(l.Button + ":\n" + l.Link)
	}
	for _, line := range l.After {
		paragraph(line)
	}
	_, _ = out.WriteString("-- \n" + place + "\n")
	if l.Unwanted != "" {
		_, _ = out.WriteString("Turn off messages like this: " + l.Unwanted + "\n")
	}
	return out.String()
}
