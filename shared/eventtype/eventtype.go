// Package eventtype lists the types of events, each with the permission that reading it needs (contract, section 6a).
package eventtype

import (
	"slices"
	"strings"

	"github.com/almonerhq/almoner/shared/perm"
)

// A Subject is what an event is about, the first part of its type.
type Subject struct {
	Name  string
	Need  perm.Permission // to read the events
	Title string          // of its types on pages
	verbs []string
}

// Types returns the types of the events about the subject.
func (s Subject) Types() []string {
	types := make([]string, len(s.verbs))
	for i, verb := range s.verbs {
		types[i] = s.Name + "." + verb
	}
	return types
}

// Subjects returns all subjects.
func Subjects() []Subject {
	return []Subject{
		{
			Name:  "programme",
			Need:  perm.ProgrammesRead,
			Title: "Programmes",
			verbs: []string{"created", "updated", "deleted"},
		},
		{
			Name:  "form",
			Need:  perm.EngageReadForms,
			Title: "Public forms",
			verbs: []string{"created", "updated", "deleted"},
		},
		{
			Name:  "submission",
			Need:  perm.EngageReadSubmissions,
			Title: "Form submissions",
			verbs: []string{"created", "updated", "deleted"},
		},
		{
			Name:  "member",
			Need:  perm.AccountReadMembers,
			Title: "Members",
			verbs: []string{"added", "updated", "removed"},
		},
		{
			Name:  "connection",
			Need:  perm.AccountAPIAccess,
			Title: "Connections",
			verbs: []string{"approved", "ended"},
		},
	}
}

// All returns all types.
func All() []string {
	var all []string
	for _, s := range Subjects() {
		all = append(all, s.Types()...)
	}
	return all
}

// Need returns the permission that reading events of the type needs, and false for an unknown type.
func Need(eventType string) (perm.Permission, bool) {
	name, _, _ := strings.Cut(eventType, ".")
	for _, s := range Subjects() {
		if s.Name == name && slices.Contains(s.Types(), eventType) {
			return s.Need, true
		}
	}
	return "", false
}

// Needs returns the permissions that reading events of the types needs.
func Needs(types []string) perm.Set {
	var needs []perm.Permission
	for _, one := range types {
		if need, known := Need(one); known {
			needs = append(needs, need)
		}
	}
	return perm.NewSet(needs...)
}

// Readable returns the types of those given that may be read with these permissions.
func Readable(types []string, held perm.Set) []string {
	readable := []string{}
	for _, one := range types {
		if need, known := Need(one); known && held.Has(need) {
			readable = append(readable, one)
		}
	}
	return readable
}

// ReadableSubjects returns the names of the subjects whose events may be read with these permissions.
func ReadableSubjects(held perm.Set) []string {
	names := []string{}
	for _, s := range Subjects() {
		if held.Has(s.Need) {
			names = append(names, s.Name)
		}
	}
	return names
}
