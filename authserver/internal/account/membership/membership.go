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
//	R3 The request changes nothing else. The administrators get a link to a form that is filled in, and a list of the
//	   requests. One of them answers a request, once: who gives what was asked for, or declines.
//
// endpoint/protocol/authorize and endpoint/settings show the form, endpoint/signin sends the request.
//
// Callers: endpoint/api, endpoint/settings, endpoint/signin, and admin for the operator's commands.
package membership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
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
	Email  string // of the member, in any spelling; "" for all
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
	ErrSent           = errors.New("the invitation was already sent")
	ErrAnswered       = errors.New("the request for access was already answered")
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

// Is reports whether the error is ErrMember.
func (t *Taken) Is(target error) bool { return target == ErrMember && len(t.Members) > 0 }

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

// addressesOf divides a text at ends of lines, commas, semicolons, and spaces between addresses. Of an address with a
// name, as mail programs copy it (RFC 5322), it returns the address.
func addressesOf(text string) (parts []string) {
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune("\r\n,;，；،؛", r) }) {
		words := strings.Fields(part)
		if _, address, named := strings.Cut(part, "<"); named && strings.HasSuffix(strings.TrimSpace(address), ">") {
			words = []string{strings.TrimSuffix(strings.TrimSpace(address), ">")}
		} else if slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(w, "@") }) {
			words = []string{part} // no list of addresses
		}
		parts = append(parts, words...)
	}
	return parts
}

// ParseEmails returns the addresses of a text, each once: one on a line, or with commas, semicolons or spaces between
// them. It returns a *Refusal that names those that are none.
func ParseEmails(text string) (emails []string, err error) {
	var wrong []string
	for _, part := range addressesOf(text) {
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
	offer("viewer", "Viewer", "Can see records and members, and change nothing.", within.Reads(), nil)
	for _, module := range perm.Modules() {
		var edits perm.Set
		for _, entry := range perm.All() {
			if entry.ID.Module() == module && !entry.Erases {
				edits = append(edits, entry.ID)
			}
		}
		title := perm.ModuleTitle(module)
		sentence := "Can see and change " + strings.ToLower(title) + ", and nothing else."
		if len(edits.Reads()) < len(edits) { // a module without writes has no editors
			offer(module+"-editor", title+" editor", sentence, edits, edits)
		}
	}
	const everything = "Can do all that you can, and decide who may do what."
	offer("administrator", "Administrator", everything, within, perm.OfAccount())
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
