package mail

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/page/brand"
)

// A letter is the content of a message. Plain text and HTML are rendered from the same letter.
type letter struct {
	Subject string
	Lines   []string // paragraphs
	Button  string   // text of the link
	Link    string   // the only link besides Unwanted
	After   []string // paragraphs below the link
	// Unwanted is the page on which the recipient turns messages of this kind off, if it is optional. render sets it.
	Unwanted string
}

// A kind describes the messages of one Kind.
type kind struct {
	name  Kind
	title string // as Settings → Security shows it
	// optional: the message is not about security, and its recipient can turn it off.
	optional bool
	life     time.Duration // how long after it was queued the message is still sent
	write    func(site, Message) letter
}

const day = 24 * time.Hour

// kinds is the table of all messages.
func kinds() []kind {
	all := []kind{
		{name: Invitation, title: "Invitations", life: 7 * day, write: invitation},
		{name: Reset, title: "Links to set a new password", life: ResetLife, write: reset},
		{name: ConnectionApproved, title: "New connections", life: 2 * day, write: connectionApproved},
		{name: ConnectionReplayed, title: "Connections that were ended", life: 2 * day, write: connectionReplayed},
		{name: TokenRevoked, title: "Personal access tokens that were revoked", life: 2 * day, write: tokenRevoked},
		{
			name:     TokenExpiring,
			title:    "Personal access tokens that are about to expire",
			optional: true,
			life:     day,
			write:    tokenExpiring,
		},
		{
			name:     Removed,
			title:    "Workspaces that you were removed from",
			optional: true,
			life:     2 * day,
			write:    removed,
		},
		{
			name:     PermissionsChanged,
			title:    "Changes of your permissions in a workspace",
			optional: true,
			life:     2 * day,
			write:    permissionsChanged,
		},
		{
			name:     AccessRequested,
			title:    "Requests for access to a workspace that you administer",
			optional: true,
			life:     2 * day,
			write:    accessRequested,
		},
		{name: AccountDeleted, title: "Your account was deleted", life: 7 * day, write: accountDeleted},
		{
			name:     WebhookDisabled,
			title:    "Webhook endpoints that were disabled",
			optional: true,
			life:     2 * day,
			write:    webhookDisabled,
		},
		{name: WebhookAdded, life: 2 * day, write: webhookAdded},
		{name: WebhookPersonal, life: 2 * day, write: webhookPersonal},
		{name: EmailChangeOld, title: "Confirm a change of your address", life: day, write: emailChangeOld},
		{name: EmailChangeNew, title: "Confirm your new address", life: day, write: emailChangeNew},
		{name: EmailTaken, title: "Your address was entered for another account", life: day, write: emailTaken},
		{name: EmailChanged, title: "Your e-mail address was changed", life: 2 * day, write: emailChanged},
		{name: WrongCodes, title: "Wrong codes after your password", life: 2 * day, write: wrongCodes},
		{name: AddressProven, title: "Your e-mail address was confirmed", life: 2 * day, write: addressProven},
		{name: MemberAddressProven, life: 2 * day, write: memberAddressProven},
	}
	for _, n := range notes {
		all = append(all, kind{name: n.kind, life: 2 * day, write: n.write})
	}
	return all
}

// ResetLife is how long a link to set a new password works.
const ResetLife = 30 * time.Minute

// kindOf returns the description of a kind, and false for one that this version does not know.
func kindOf(name Kind) (kind, bool) {
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, false
	}
	return all[i], true
}

// Kinds returns all kinds.
func Kinds() []Kind {
	var all []Kind
	for _, k := range kinds() {
		all = append(all, k.name)
	}
	return all
}

// An OptionalKind is a kind that its recipients can turn off.
type OptionalKind struct {
	Kind  Kind
	Title string
}

// OptionalKinds returns the kinds that are not about security.
func OptionalKinds() []OptionalKind {
	var optional []OptionalKind
	for _, k := range kinds() {
		if k.optional {
			optional = append(optional, OptionalKind{k.name, k.title})
		}
	}
	return optional
}

// Optional reports whether recipients can turn the kind off.
func (k Kind) Optional() bool {
	known, ok := kindOf(k)
	return ok && known.optional
}

// A site is the deployment that sends.
type site struct {
	appURL string
	brand  brand.Brand
}

func (s site) page(path string) string { return s.appURL + path }

// host returns the host of the pages, which names the deployment in the texts.
func (s site) host() string {
	parsed, err := url.Parse(s.appURL)
	if err != nil {
		return s.appURL
	}
	return parsed.Host
}

// hostname is host without a port.
func (s site) hostname() string {
	parsed, err := url.Parse(s.appURL)
	if err != nil {
		return "localhost"
	}
	return parsed.Hostname()
}

func (s site) withToken(path string, m Message) string {
	return s.page(path) + "?token=" + url.QueryEscape(m.Token.Reveal())
}

func reset(s site, m Message) letter {
	return letter{
		Subject: "Set a new password",
		Lines: []string{
			"A new password was requested for your account at " + s.host() + ".",
			"Open this link to set it. The link works once, until " + moment(m.Expires) + ".",
		},
		Button: "Set a new password",
		Link:   s.withToken(ResetPath, m),
		After:  []string{"If you did not request this, ignore this message. Your password stays as it is."},
	}
}

func connectionApproved(s site, m Message) letter {
	d := m.Data
	lines := []string{
		fmt.Sprintf("You gave %s access to the workspace %s on %s.", d.Application, d.Workspace, moment(d.At)),
	}
	if len(d.Permissions) > 0 {
		lines = append(lines, "It can: "+strings.Join(d.Permissions, ", ")+".")
	}
	return letter{
		Subject: "New connection",
		Lines:   append(lines, "If this was not you, disconnect it and change your password."),
		Button:  "Check your connected apps",
		Link:    s.page("/settings/apps"),
	}
}

func connectionReplayed(s site, m Message) letter {
	d := m.Data
	return letter{
		Subject: "A connection was ended",
		Lines: []string{
			fmt.Sprintf(
				"We disconnected %s from the workspace %s on %s, because an old access key of the application was "+
					"used again. It may have been copied.",
				d.Application,
				d.Workspace,
				moment(d.At),
			),
			"To use the application again, connect it again. If this happens more than once, tell its provider.",
		},
		Button: "Check your connected apps",
		Link:   s.page("/settings/apps"),
	}
}

func tokenRevoked(s site, m Message) letter {
	d := m.Data
	return letter{
		Subject: "A personal access token was revoked",
		Lines: []string{
			fmt.Sprintf(
				"Your personal access token %s for the workspace %s was revoked on %s, because a person or a "+
					"program reported its value to us. It no longer works.",
				d.Token,
				d.Workspace,
				moment(d.At),
			),
			"If this was not you, others have the value. Find out where it was stored, and check what the token was " +
				"used for.",
			"If a script or an integration uses it, create another token and replace it there.",
		},
		Button: "Manage your tokens",
		Link:   s.page("/settings/security"),
	}
}

func tokenExpiring(s site, m Message) letter {
	d := m.Data
	return letter{
		Subject: "A personal access token is about to expire",
		Lines: []string{
			fmt.Sprintf("Your personal access token %s for the workspace %s stops working on %s.", d.Token, d.Workspace,
				moment(d.Ends)),
			"If a script or an integration uses it, create another token and replace it there.",
		},
		Button: "Manage your tokens",
		Link:   s.page("/settings/security"),
	}
}

func webhookDisabled(s site, m Message) letter {
	d := m.Data
	why := "because it has accepted no event for three days"
	if d.Gone {
		why = "because it answered with status 410 (gone)"
	}
	return letter{
		Subject: "A webhook endpoint was disabled",
		Lines: []string{
			fmt.Sprintf(
				"The webhook endpoint at %s of the workspace %s was disabled on %s, %s. It gets no more events.",
				d.Host, d.Workspace, moment(d.At), why),
			"When it is enabled again, it gets the events that it missed, except those that are older than 30 days.",
		},
		Button: "Open your webhooks",
		Link:   s.page("/settings/developers"),
	}
}

func webhookAdded(s site, m Message) letter {
	d := m.Data
	by, advice := "in Settings", "If you do not know this endpoint, delete it."
	if d.Token != "" {
		by = "with the personal access token " + d.Token + ", and ends with it"
		advice = "If you do not know this endpoint, delete it, and revoke the token."
	}
	if d.Application != "" {
		by = "with the application " + d.Application + ", and ends with its connection"
		advice = "If you do not know this endpoint, delete it, and disconnect the application."
	}
	gets := "Events of the workspace are sent there, without personal data."
	if d.Personal {
		gets = "Events of the workspace are sent there with personal data: names, e-mail addresses and answers."
	}
	return letter{
		Subject: "A webhook endpoint was added",
		Lines: []string{
			fmt.Sprintf("%s added a webhook endpoint at %s to the workspace %s on %s. It was added %s.",
				d.Person, d.Host, d.Workspace, moment(d.At), by),
			gets,
			advice,
		},
		Button: "Open the webhooks",
		Link:   s.page(d.Path),
	}
}

func webhookPersonal(s site, m Message) letter {
	d := m.Data
	return letter{
		Subject: "A webhook endpoint now gets personal data",
		Lines: []string{
			fmt.Sprintf("%s chose to send personal data to the webhook endpoint at %s of the workspace %s on %s.",
				d.Person, d.Host, d.Workspace, moment(d.At)),
			"From now on, events are sent there with names, e-mail addresses and answers.",
			"If you do not want this, open the endpoint and choose “Send no personal data”.",
		},
		Button: "Open the webhooks",
		Link:   s.page(d.Path),
	}
}

// operatorAdvice says what to do about a change that an operator can have made.
func operatorAdvice(s site) string {
	return "If you did not ask for this, tell the person who runs " + s.host() +
		" or an administrator of your workspaces."
}

// where describes the browser or the operator of an event, or is "".
func where(d Data) string {
	if d.Operator {
		return " by the person who runs this service"
	}
	var parts []string
	if d.Device != "" {
		parts = append(parts, strings.Replace(d.Device, "A browser", "a browser", 1))
	}
	if d.Network != "" {
		parts = append(parts, "address "+d.Network)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func moment(at time.Time) string { return at.UTC().Format("2 January 2006, 15:04") + " UTC" }

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
