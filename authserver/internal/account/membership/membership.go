// Package membership defines who is in a workspace, and how members and invitations change.
//
//	M1 A caller gives only permissions that the caller and the caller's credential hold in the workspace at that
//	   moment.
//	M2 The last enabled member with one of the permissions of account can neither be removed nor lowered in it, nor
//	   leave: no member could give it back.
//	M3 The end of a membership ends the user's grants and personal access tokens in the workspace, and the invitations
//	   that the user sent, in one transaction.
//	M4 An invitation is accepted at most once, within 7 days, by the user with its address, and only while its inviter
//	   could still send it.
//	M5 Invitations within 24 hours are limited per user, per workspace, and per user and address. The number of users
//	   who invite one address is limited, in one workspace and in all. One user cannot exhaust the limit of an address
//	   for others, and one workspace cannot exhaust the limits of another.
//	M6 A user whose address was never proven gets nothing more: neither a membership by an invitation nor another
//	   permission, from a member or an operator. Another person may have the account.
//
// Taking permissions away needs account:write:members alone: a member who leaves an organisation can be removed by each
// administrator, also by one who holds less.
//
// A user who lacks access can ask the administrators of a workspace for it:
//
//	R1 A user can ask only for access that a page of this server reported as missing: the form contains a sealed
//	   ticket that is bound to the sign-in. Pages offer the form for workspaces of the user, and for the workspace
//	   that a valid authorization request names. So a request does not reveal whether a workspace exists.
//	R2 A user sends at most one request per workspace and day. All users who are not members together send at most
//	   MaxRequestsByNonMembers per workspace and day, so that they cannot flood the administrators. Members have no
//	   common limit.
//	R3 The request changes nothing else. The administrators get a link to a form that is filled in.
//
// endpoint/protocol/authorize and endpoint/settings show the form, endpoint/signin sends the request.
//
// Callers: endpoint/api, endpoint/settings, endpoint/signin, and admin for the operator's commands.
package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A Member is a user with a membership of one workspace.
type Member struct {
	ListedMember
	Since       time.Time
	LastSeen    *time.Time // at a browser, in any workspace; nil if never
	Connections int        // active grants in the workspace
	Tokens      int        // active personal access tokens in the workspace
	Proven      bool       // the address is the user's (useraccount.Proof); if not, the member gets no more permissions
}

// A ListedMember is the part of a Member by which members are sorted, searched and counted.
type ListedMember struct {
	UserID       uuid.UUID
	Name         string
	Email        string
	Permissions  perm.Set
	Since        time.Time
	Disabled     bool
	SecondFactor bool // the user has a passkey or an authenticator app
}

// A MemberPage selects members of a workspace, of whom the latest come first.
type MemberPage struct {
	Before time.Time // members who joined before then or, if their UserID is lower, at that time; zero for all
	UserID uuid.UUID
	Words  string // part of the name, the address or the permissions, or a whole address; "" for any
	Limit  int
}

// UserIDs returns the identifiers of the members.
func UserIDs(members []ListedMember) []uuid.UUID {
	ids := make([]uuid.UUID, 0, len(members))
	for _, m := range members {
		ids = append(ids, m.UserID)
	}
	return ids
}

// An Invitation is an invitation that was neither answered nor withdrawn.
type Invitation struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	Email       string // lower case
	Permissions perm.Set
	InviterID   uuid.UUID
	Inviter     string // name
	Created     time.Time
	Expires     time.Time
}

// Life is how long an invitation can be accepted (contract, section 7). The store's clock decides.
const Life = 7 * 24 * time.Hour

// Expired reports whether the invitation can no longer be accepted.
func (i Invitation) Expired(now time.Time) bool { return !now.Before(i.Expires) }

// An Offer is an invitation as the invited person sees it.
type Offer struct {
	Invitation
	Workspace    string
	Organisation string
	HasAccount   bool // a user has the address
	Mailed       bool // the link was mailed; otherwise its inviter has it, who must not learn HasAccount
}

// A Removal is what ended with a membership.
type Removal = useraccount.EndedCredentials

// Errors of the rules. Nothing was changed.
var (
	ErrNoMember       = errors.New("no such member in this workspace")
	ErrMember         = errors.New("the user is a member already")
	ErrLastHolder     = errors.New("the last member with a permission of account")
	ErrChanged        = errors.New("the permissions changed since they were read")
	ErrNoInvitation   = errors.New("no such open invitation")
	ErrOtherAddress   = errors.New("the invitation is for another address")
	ErrUnproven       = errors.New("the address was never proven to be the user's")
	ErrInviter        = errors.New("the inviter can no longer give these permissions")
	ErrAccountExists  = errors.New("a user has the address of the invitation")
	ErrPasskeyExists  = errors.New("the passkey belongs to another user")
	ErrTooManyInvited = errors.New("the workspace has too many open invitations")
	ErrInvited        = errors.New("the address has an open invitation")
	ErrSent           = errors.New("the invitation was already sent")
)

// A Refusal says which field of a request is invalid, and why.
type Refusal struct{ Field, Message string }

func (r *Refusal) Error() string { return r.Message }

// A NotHeld lists permissions that the caller wants to give and does not hold (M1).
type NotHeld struct{ Missing perm.Set }

func (n *NotHeld) Error() string { return "permissions not held: " + n.Missing.Scope() }

// A Taken names addresses that cannot be invited: those of members, and those with an open invitation.
type Taken struct{ Members, Invited []string }

func (t *Taken) Error() string { return "the addresses are those of members, or have open invitations" }

// Is reports whether the error is ErrMember or ErrInvited.
func (t *Taken) Is(target error) bool {
	return target == ErrMember && len(t.Members) > 0 || target == ErrInvited && len(t.Invited) > 0
}

// ParseEmail returns an address in its canonical spelling, in which it is stored, or a *Refusal.
func ParseEmail(text string) (string, error) {
	email, ok := spelling.Email(text)
	if !ok || strings.HasSuffix(email, "@deleted.invalid") { // the addresses of deleted users
		return "", &Refusal{"email", "Enter an e-mail address such as ada@example.org."}
	}
	return email, nil
}

// MaxInvited is how many people can be invited at once.
const MaxInvited = 50

// ParseEmails returns the addresses of a text, each once: one on a line, or with commas or semicolons between them. It
// returns a *Refusal that names those that are none.
func ParseEmails(text string) (emails []string, err error) {
	var wrong []string
	parts := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("\r\n,;，；،؛", r) })
	for _, part := range parts {
		if part = spelling.Pasted(part); part == "" {
			continue
		}
		var email string
		switch email, err = ParseEmail(part); {
		case err != nil:
			wrong = append(wrong, "“"+part+"”")
		case !slices.Contains(emails, email):
			emails = append(emails, email)
		}
		if len(emails)+len(wrong) > MaxInvited {
			return nil, &Refusal{"email", fmt.Sprintf("Enter at most %d addresses at once.", MaxInvited)}
		}
	}
	switch {
	case len(emails) == 0 && len(wrong) < 2:
		_, err = ParseEmail("")
	case len(wrong) == 1:
		err = &Refusal{"email", "Not an e-mail address: " + wrong[0] + ". Correct or remove it."}
	case len(wrong) > 1:
		err = &Refusal{"email", "Not e-mail addresses: " + strings.Join(wrong, ", ") + ". Correct or remove them."}
	default:
		return emails, nil
	}
	return nil, err
}

// ParsePermissions returns the permissions with these identifiers, or a *Refusal.
func ParsePermissions(identifiers []string) (perm.Set, error) {
	set := perm.FromStrings(identifiers)
	if len(set) == 0 {
		return nil, &Refusal{"permissions", "Choose at least one permission."}
	}
	if slices.ContainsFunc(set, func(p perm.Permission) bool { return !perm.Known(p) }) {
		return nil, &Refusal{"permissions", "One of the permissions is unknown."}
	}
	return set, nil
}

// A Preset is a role: permissions that a form gives with one choice. No member has a role, only its permissions.
type Preset struct {
	Name        string // in forms
	Title       string
	Sentence    string
	Permissions perm.Set
}

// Custom is the preset of other permissions.
const Custom = "custom"

// Presets returns the presets for a person who can choose among the permissions of within. They follow from the table
// of permissions: all reads; for each module, what changes its records and can be undone; and everything, if the person
// can make administrators.
func Presets(within perm.Set) (out []Preset) {
	within = within.Intersect(perm.FullSet())
	offer := func(name, title, sentence string, permissions, needed perm.Set) {
		if len(permissions) > 0 && within.HasAll(needed) {
			out = append(out, Preset{name, title, sentence, permissions})
		}
	}
	offer("viewer", "Viewer", "Sees everything, and changes nothing.", within.Reads(), nil)
	for _, module := range perm.Modules() {
		var edits perm.Set
		for _, entry := range perm.All() {
			if entry.ID.Module() == module && !entry.Erases {
				edits = append(edits, entry.ID)
			}
		}
		title := perm.ModuleTitle(module)
		sentence := "Sees and changes " + strings.ToLower(title) + ", and nothing else."
		if len(edits.Reads()) < len(edits) { // a module without writes has no editors
			offer(module+"-editor", title+" editor", sentence, edits, edits)
		}
	}
	offer("administrator", "Administrator", "Does everything, and decides who may do what.", within, perm.OfAccount())
	return out
}

// PresetOf returns the preset of within that gives exactly these permissions, or one with the name Custom.
func PresetOf(permissions, within perm.Set) Preset {
	for _, preset := range Presets(within) {
		if preset.Permissions.Scope() == permissions.Scope() {
			return preset
		}
	}
	return Preset{Name: Custom, Permissions: permissions}
}

// LimitWindow is the period in which sent invitations are counted. A message counts even if its invitation was
// withdrawn.
const LimitWindow = 24 * time.Hour

// A Limit is the maximum number of invitations sent within LimitWindow, or of users who sent them. An invitation that
// is sent again counts again. A refused request does not count.
type Limit struct {
	Name string // in the header RateLimit
	Most int
	Text string // message for the user
}

// The limits (M5).
var (
	PerInviter = Limit{"invitations-per-inviter", 50,
		"You have sent 50 invitations within 24 hours, which is the maximum."}
	PerWorkspace = Limit{"invitations-per-workspace", 200,
		"The workspace has sent 200 invitations within 24 hours, which is the maximum."}
	PerAddressOfInviter = Limit{"invitations-per-address", 5,
		"You have sent 5 invitations to this address within 24 hours, which is the maximum."}
	// PerAddressInWorkspace and PerAddress count users, so that one user cannot exhaust the limit of the others.
	PerAddressInWorkspace = Limit{"inviters-per-address", 5,
		"5 people of the workspace have invited this address within 24 hours, which is the maximum."}
	// PerAddress counts the users of all workspaces. It never applies to the first message of a workspace to an
	// address, so that other workspaces cannot prevent the invitation of a person.
	PerAddress = Limit{"inviters-per-address-in-all-workspaces", 20,
		"Too many people have invited this address within 24 hours."}
)

// A LimitError reports that a limit was reached. Nothing was sent.
type LimitError struct {
	Limit
	Email string        // of the invitation
	Wait  time.Duration // until another invitation can be sent
}

func (l *LimitError) Error() string { return "limit reached: " + l.Name }

// RateLimit describes the limit to the caller of the API.
func (l *LimitError) RateLimit() web.RateLimit {
	return web.RateLimit{Name: l.Name, Quota: l.Most, Window: LimitWindow, Reset: l.Wait}
}

// Limits of the requests for access.
const (
	// RequestInterval is the minimum time between two requests of one user in one workspace.
	RequestInterval = 24 * time.Hour
	// RequestsKept is how long a request is stored and fills in the administrator's form.
	RequestsKept = 30 * 24 * time.Hour
	// MaxRequestsByNonMembers is the maximum number of requests of users who are not members, per workspace and
	// RequestInterval.
	MaxRequestsByNonMembers = 10
	// MaxRequestRecipients is the maximum number of mails that one request sends.
	MaxRequestRecipients = 20
	// TicketLife is how long a ticket is valid after its page was opened.
	TicketLife = 24 * time.Hour
)

// An AccessRequest is what a user asks for.
type AccessRequest struct {
	SignInID       uuid.UUID `json:"s"`
	UserID         uuid.UUID `json:"u"`
	WorkspaceID    uuid.UUID `json:"w"`
	Permissions    perm.Set  `json:"p,omitempty"` // missing permissions; a user who is no member also lacks the membership
	LLMIntegration bool      `json:"l,omitempty"` // the workspace's LLM integration is off
	Policy         bool      `json:"c,omitempty"` // the workspace's connector policy refuses the application
	Application    string    `json:"a,omitempty"` // the application that needs the access, or ""
	Back           []byte    `json:"b,omitempty"` // local path to return to; bytes, like consent.Ticket.Request
	Issued         time.Time `json:"i"`
}

// Decides returns the permission of the members who get the request.
func (r AccessRequest) Decides() perm.Permission {
	if r.Policy {
		return perm.AccountAPIAccess
	}
	return perm.AccountWriteMembers
}

// Needs returns the permissions that a member needs, besides Decides, to give the requested access.
func (r AccessRequest) Needs() perm.Set {
	if r.LLMIntegration {
		return perm.NewSet(perm.AccountAPIAccess) // for Settings → Assistants
	}
	return r.Permissions
}

// A Manager is a member who can give access.
type Manager struct {
	UserID      uuid.UUID
	Name, Email string
}

// An Outcome is the result of a request.
type Outcome string

// The outcomes.
const (
	RequestSent       Outcome = "sent"
	RequestSentBefore Outcome = "already sent" // R2
	TooManyRequests   Outcome = "too many"     // R2
	NoManager         Outcome = "no manager"   // no other member gets the mail
	AccessGiven       Outcome = "already given"
	NoMail            Outcome = "no mail"  // the deployment sends no mail
	RequesterUnproven Outcome = "unproven" // the mail would name an address that may not be the user's
)

// A SentRequest is a request that was sent, as the page of an administrator shows it.
type SentRequest struct {
	UserID      uuid.UUID
	Name, Email string
	Permissions perm.Set
	Application string
	At          time.Time
}

// Managers reads who can give access; postgres.Store implements it.
type Managers interface {
	// Managers lists the enabled members with the permission that AccessRequest.Decides names, except the user who
	// asks. If any of them hold the permissions that AccessRequest.Needs names, it lists only these. With mailed, it
	// omits those who do not want the mail.
	Managers(ctx context.Context, q AccessRequest, mailed bool) ([]Manager, error)
}

// AccessOffers creates the forms by which users ask for access. It is safe for concurrent use.
type AccessOffers struct {
	store Managers
	mails bool
	box   *seal.Box
}

// NewAccessOffers derives the key of the tickets from the master keys. mails tells whether the deployment sends mail.
func NewAccessOffers(store Managers, mails bool, keys seal.Keys) (*AccessOffers, error) {
	box, err := seal.NewBox(keys, "access request")
	if err != nil {
		return nil, err
	}
	return &AccessOffers{store, mails, box}, nil
}

// An AccessOffer is what a page offers to a user who lacks access.
type AccessOffer struct {
	Ticket string    // for the form, or "" if the deployment sends no mail
	People []Manager // the managers to ask instead, if the user may see the members
	None   bool      // no other member can give the access, or get the mail
}

// Offer returns the offer for a request. held are the user's permissions in the workspace.
func (o *AccessOffers) Offer(ctx context.Context, q AccessRequest, held perm.Set) (AccessOffer, error) {
	if !o.mails && !held.Has(perm.AccountReadMembers) {
		return AccessOffer{}, nil
	}
	people, err := o.store.Managers(ctx, q, o.mails)
	switch {
	case err != nil:
		return AccessOffer{}, err
	case len(people) == 0:
		return AccessOffer{None: true}, nil
	case !o.mails:
		return AccessOffer{People: people}, nil
	}
	text, err := json.Marshal(q)
	if err != nil {
		return AccessOffer{}, fmt.Errorf("access request: %w", err)
	}
	return AccessOffer{Ticket: o.box.Seal(text)}, nil
}

// ErrTicket reports that a ticket is not valid for the sign-in.
var ErrTicket = errors.New("the ticket of the access request is not valid")

// Open returns the request in a ticket of this sign-in, or ErrTicket.
func (o *AccessOffers) Open(ticket string, signInID uuid.UUID, now time.Time) (AccessRequest, error) {
	content, err := o.box.Open(ticket)
	if err != nil {
		return AccessRequest{}, ErrTicket
	}
	var q AccessRequest
	if json.Unmarshal(content, &q) != nil || q.SignInID != signInID || now.Sub(q.Issued) > TicketLife {
		return AccessRequest{}, ErrTicket
	}
	return q, nil
}
