// Package perm answers: which permissions exist, and what does each let its holder do?
//
// The registry below is the one list. Consent, token forms, Connected apps, registration and metadata read it;
// an identifier that is not in it is unknown everywhere (contract, section 8).
package perm

import (
	"slices"
	"strings"
)

// A Permission is an identifier <module>:<action>:<resource> (spec 2.3), compared byte by byte.
type Permission string

// The permissions known.
const (
	AccountAPIAccess      Permission = "account:api:access"
	ProgrammesRead        Permission = "programmes:read:programmes"
	ProgrammesWrite       Permission = "programmes:write:programmes"
	EngageReadForms       Permission = "engage:read:forms"
	EngageWriteForms      Permission = "engage:write:forms"
	EngageReadSubmissions Permission = "engage:read:submissions"
)

// A Risk says how much harm a permission does in the wrong hands; pages sort and mark by it.
type Risk int

// Low: reads what the workspace works on. Sensitive: reads about people. High: changes things, or gives access to
// others. An entry that does not say has none of them.
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
		Sentence:  "Create programmes, edit them, and move them on from draft to active, completed or archived.",
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
		Title:     "Read what people sent in",
		Risk:      Sensitive,
		Connector: true,
		Sentence:  "Read the answers that supporters gave in this workspace's forms, with their contact details.",
	},
	{
		ID:    AccountAPIAccess,
		Title: "Manage API access",
		Risk:  High,
		Sentence: "Create personal access tokens, register applications, decide what connectors may be given, and " +
			"read the audit log of this workspace.",
	},
}

// All returns every entry, in the order in which pages show them.
func All() []Entry { return slices.Clone(registry) }

// Describe returns the entry of a known permission.
func Describe(p Permission) (Entry, bool) {
	for _, entry := range registry {
		if entry.ID == p {
			return entry, true
		}
	}
	return Entry{}, false
}

// Known says whether p is in the registry, to the letter.
func Known(p Permission) bool { _, ok := Describe(p); return ok }

// ForConnectors is the set that a connector may be granted: the scopes_supported of the authorization server's
// metadata.
func ForConnectors() Set { return slices.Clone(API.set()) }

// A Set is a set of permissions: sorted in the registry's order, without duplicates. The zero value is empty.
type Set []Permission

// NewSet makes a set of the permissions, unknown ones included (they sort last): what an old row names stays visible.
func NewSet(ps ...Permission) Set {
	out := slices.Clone(ps)
	slices.SortFunc(out, func(a, b Permission) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(string(a), string(b))
	})
	return slices.Compact(out)
}

// FromStrings makes a set of identifiers as they are stored.
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

// Has says whether p is in the set, to the letter.
func (s Set) Has(p Permission) bool { return slices.Contains(s, p) }

// HasAll says whether every permission of other is in the set.
func (s Set) HasAll(other Set) bool { return len(s.Intersect(other)) == len(other) }

// Intersect returns what is in both.
func (s Set) Intersect(other Set) Set {
	var out Set
	for _, p := range s {
		if other.Has(p) {
			out = append(out, p)
		}
	}
	return out
}

// Without returns what is in s and not in other.
func (s Set) Without(other Set) Set {
	var out Set
	for _, p := range s {
		if !other.Has(p) {
			out = append(out, p)
		}
	}
	return out
}

// Union returns what is in either.
func (s Set) Union(other Set) Set { return NewSet(append(slices.Clone(s), other...)...) }

// Needs returns what the permissions of the set are of no use without, be it in the set or not.
func (s Set) Needs() Set {
	var out []Permission
	for _, p := range s {
		if entry, known := Describe(p); known && entry.Needs != "" {
			out = append(out, entry.Needs)
		}
	}
	return NewSet(out...)
}

// Strings returns the identifiers; never nil, so that JSON and Postgres see an empty array.
func (s Set) Strings() []string {
	out := make([]string, len(s))
	for i, p := range s {
		out[i] = string(p)
	}
	return out
}

// Scope is the set as a scope value: identifiers separated by one space (RFC 6749, section 3.3).
func (s Set) Scope() string { return strings.Join(s.Strings(), " ") }

// ParseScope reads a scope value: separated by spaces, surplus ones ignored (contract, section 4).
func ParseScope(scope string) Set {
	return FromStrings(strings.FieldsFunc(scope, func(r rune) bool { return r == ' ' }))
}
