// Package perm defines the permissions.
//
// The registry below is the only list. Consent, token forms, Connected apps, registration and metadata read
// it; an identifier that is not in it is unknown everywhere (contract, section 8).
package perm

import (
	"cmp"
	"slices"
	"strings"
)

// A Permission is an identifier <module>:<action>:<resource> (spec 2.3), compared byte by byte.
type Permission string

// Module returns the module of the permission.
func (p Permission) Module() string {
	module, _, _ := strings.Cut(string(p), ":")
	return module
}

// account is the first part of the authorization server's permissions. It is not a module, because every workspace has
// it.
const account = "account"

// OfModule reports whether the permission belongs to a module, which may be provisioned for a workspace or not.
func (p Permission) OfModule() bool { return p != "" && p.Module() != account }

// Reads reports whether the permission reads and changes nothing.
func (p Permission) Reads() bool {
	parts := strings.Split(string(p), ":")
	return len(parts) == 3 && parts[1] == "read"
}

// Modules returns the modules that a workspace may have, in the registry's order.
func Modules() []string {
	var out []string
	for _, entry := range registry {
		if module := entry.ID.Module(); module != account && !slices.Contains(out, module) {
			out = append(out, module)
		}
	}
	return out
}

// moduleTitles are the names of modules on pages, if they are not those of permissions.
var moduleTitles = map[string]string{"engage": "Forms"}

// ModuleTitle returns the name of a module on pages.
func ModuleTitle(module string) string {
	if title := moduleTitles[module]; title != "" || module == "" {
		return title
	}
	return strings.ToUpper(module[:1]) + module[1:]
}

// The known permissions.
const (
	AccountAPIAccess      Permission = "account:api:access"
	AccountReadMembers    Permission = "account:read:members"
	AccountWriteMembers   Permission = "account:write:members"
	ProgrammesRead        Permission = "programmes:read:programmes"
	ProgrammesWrite       Permission = "programmes:write:programmes"
	EngageReadForms       Permission = "engage:read:forms"
	EngageWriteForms      Permission = "engage:write:forms"
	EngageReadSubmissions Permission = "engage:read:submissions"

	EngageWriteSubmissions Permission = "engage:write:submissions"
)

// A Risk is how much harm a permission can do in the wrong hands. Pages sort and mark by it.
type Risk int

// Low reads the workspace's data. Sensitive reads data about people. High changes data or gives access to
// others. The zero value is none of these.
const (
	Low Risk = iota + 1
	Sensitive
	High
)

func (r Risk) String() string { return [...]string{"unknown", "low", "sensitive", "high"}[r] }

// An Entry describes one permission in words that a volunteer understands.
type Entry struct {
	ID        Permission
	Title     string // what it does, as a short imperative: "See programmes"
	Sentence  string // what that means, as one sentence
	Risk      Risk
	Connector bool       // may be given to a connector (contract, section 5)
	Tool      bool       // some tool of {base_url}/mcp needs it (contract, section 5)
	Needs     Permission // the read that a write is useless without, or ""
	Erases    bool       // what it does cannot be undone: of the presets, only that of administrators has it
}

var registry = []Entry{
	{
		ID:        ProgrammesRead,
		Title:     "See programmes",
		Risk:      Low,
		Connector: true,
		Tool:      true,
		Sentence:  "Read the names, summaries, dates and status of this workspace's programmes.",
	},
	{
		ID:        ProgrammesWrite,
		Title:     "Add and change programmes",
		Risk:      High,
		Connector: true,
		Needs:     ProgrammesRead,
		Sentence:  "Create and edit programmes, and change their status to active, completed or archived.",
	},
	{
		ID:        EngageReadForms,
		Title:     "See public forms",
		Risk:      Low,
		Connector: true,
		Sentence:  "Read the public forms of this workspace: their titles, their questions and where they are shown.",
	},
	{
		ID:        EngageWriteForms,
		Title:     "Add and change public forms",
		Risk:      High,
		Connector: true,
		Needs:     EngageReadForms,
		Sentence:  "Create public forms and choose the websites that may show them.",
	},
	{
		ID:        EngageReadSubmissions,
		Title:     "Read form submissions",
		Risk:      Sensitive,
		Connector: true,
		Sentence:  "Read supporters' answers to this workspace's forms, including their contact details.",
	},
	{
		ID:        EngageWriteSubmissions,
		Title:     "Erase form submissions",
		Risk:      High,
		Connector: true,
		Needs:     EngageReadSubmissions,
		Erases:    true,
		Sentence:  "Erase submissions and supporters of this workspace. What is erased cannot be restored.",
	},
	{
		ID:    AccountAPIAccess,
		Title: "Manage API access",
		Risk:  High,
		Sentence: "Create personal access tokens, register applications, set the assistant rules, and read the " +
			"audit log of this workspace.",
	},
	{
		ID:       AccountReadMembers,
		Title:    "See members",
		Risk:     Sensitive,
		Sentence: "See the names, e-mail addresses and permissions of this workspace's members, and its invitations.",
	},
	{
		ID:       AccountWriteMembers,
		Title:    "Manage members",
		Risk:     High,
		Needs:    AccountReadMembers,
		Sentence: "Invite and remove people, and give them permissions that the person who manages them has too.",
	},
}

// All returns every entry, in the order in which pages show them.
func All() []Entry { return slices.Clone(registry) }

// FullSet returns the set of all permissions.
func FullSet() Set { return choose(func(Entry) bool { return true }) }

// Describe returns the entry of a known permission.
func Describe(p Permission) (Entry, bool) {
	if at := rank(p); at < len(registry) {
		return registry[at], true
	}
	return Entry{}, false
}

// Known reports whether p is in the registry. The comparison is exact.
func Known(p Permission) bool { return rank(p) < len(registry) }

// ForConnectors returns the set that a connector may be granted: the scopes_supported of the authorization
// server's metadata.
func ForConnectors() Set { return API.ForConnectors() }

// A Set is a set of permissions in the registry's order without duplicates. The zero value is empty.
type Set []Permission

// NewSet makes a set of the permissions. It includes unknown ones, which sort last, so that those of old rows
// stay visible.
func NewSet(ps ...Permission) Set {
	out := slices.Clone(ps)
	slices.SortFunc(out, func(a, b Permission) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(string(a), string(b)))
	})
	return slices.Compact(out)
}

// FromStrings makes a set of stored identifiers.
func FromStrings(ids []string) Set {
	out := make([]Permission, len(ids))
	for i, id := range ids {
		out[i] = Permission(id)
	}
	return NewSet(out...)
}

func rank(p Permission) int {
	for i, entry := range registry {
		if entry.ID == p {
			return i
		}
	}
	return len(registry)
}

// Has reports whether p is in the set. The comparison is exact.
func (s Set) Has(p Permission) bool { return slices.Contains(s, p) }

// HasAll reports whether every permission of other is in the set.
func (s Set) HasAll(other Set) bool { return len(s.Intersect(other)) == len(other) }

// Intersect returns the permissions that are in both sets.
func (s Set) Intersect(other Set) Set { return s.filter(other.Has) }

// Without returns the permissions that are in s but not in other.
func (s Set) Without(other Set) Set {
	return s.filter(func(p Permission) bool { return !other.Has(p) })
}

// Reads returns the permissions of s that change nothing.
func (s Set) Reads() Set { return s.filter(Permission.Reads) }

// filter returns the permissions for which keep returns true, or nil if there are none.
func (s Set) filter(keep func(Permission) bool) (out Set) {
	for _, p := range s {
		if keep(p) {
			out = append(out, p)
		}
	}
	return out
}

// OfAccount returns the permissions of account, which manage a workspace.
func OfAccount() Set { return NewSet(AccountAPIAccess, AccountReadMembers, AccountWriteMembers) }

// OfAccount returns the permissions of s that are of account.
func (s Set) OfAccount() Set {
	return s.filter(func(p Permission) bool { return p.Module() == account })
}

// Union returns the permissions that are in either set.
func (s Set) Union(other Set) Set { return NewSet(append(slices.Clone(s), other...)...) }

// Needs returns the permissions that those of the set require, whether or not they are in the set.
func (s Set) Needs() Set {
	var out []Permission
	for _, p := range s {
		if entry, known := Describe(p); known && entry.Needs != "" {
			out = append(out, entry.Needs)
		}
	}
	return NewSet(out...)
}

// Strings returns the identifiers. It never returns nil, so that JSON and Postgres get an empty array.
func (s Set) Strings() []string {
	out := make([]string, len(s))
	for i, p := range s {
		out[i] = string(p)
	}
	return out
}

// Scope returns the set as a scope value: identifiers separated by one space (RFC 6749, section 3.3).
func (s Set) Scope() string { return strings.Join(s.Strings(), " ") }

// ParseScope parses a scope value: identifiers separated by spaces. Surplus spaces are ignored (contract,
// section 4).
func ParseScope(scope string) Set {
	return FromStrings(strings.FieldsFunc(scope, func(r rune) bool { return r == ' ' }))
}

// A Resource is a protected resource of a deployment: its path below the base address. Both together are the
// resource identifier of an access token (RFC 8707; contract, section 1).
type Resource string

// The resources.
const (
	API Resource = "/v1"
	MCP Resource = "/mcp"
)

// Identifiers returns the resource identifiers of a deployment. The first is the default of confidential
// clients. baseURL must have no trailing slash.
func Identifiers(baseURL string) []string {
	return []string{baseURL + string(API), baseURL + string(MCP)}
}

// ForConnectors returns the set that a connector may be granted at the resource: what its operations can use
// (contract, section 5). The challenge, the metadata of the resource, the consent page and the tokens of
// connectors contain only permissions of this set.
func (r Resource) ForConnectors() Set { return append(Set(nil), usable[r]...) }

// Usable returns the permissions of the set that a connector can be granted at the resource with this
// identifier, or none if there is no such resource. Older clients and grants may have more, which has no
// effect.
func (s Set) Usable(identifier string) Set {
	_, rest, absolute := strings.Cut(identifier, "://")
	at := strings.IndexByte(rest, '/')
	if !absolute || at <= 0 {
		return nil // a base address, or one without a host
	}
	return s.Intersect(usable[Resource(rest[at:])])
}

// usable are the sets of the resources. They must not be modified.
var usable = map[Resource]Set{
	API: choose(func(e Entry) bool { return e.Connector }),
	MCP: choose(func(e Entry) bool { return e.Connector && e.Tool }),
}

func choose(fits func(Entry) bool) Set {
	var out []Permission
	for _, entry := range registry {
		if fits(entry) {
			out = append(out, entry.ID)
		}
	}
	return NewSet(out...)
}
