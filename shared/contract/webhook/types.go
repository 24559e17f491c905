package webhook

import (
	"slices"
	"strings"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The types of events and the permission for reading each type (contract, section 6a).

// A Subject is the kind of record that an event is about. Its name is the first part of the type.
type Subject struct {
	Name  string
	Need  perm.Permission // permission for reading the events
	Title string          // shown on pages
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

// EventTypes returns all types.
func EventTypes() []string {
	var all []string
	for _, s := range Subjects() {
		all = append(all, s.Types()...)
	}
	return all
}

// Need returns the permission for reading events of the type, and false for an unknown type.
func Need(eventType string) (perm.Permission, bool) {
	name, _, _ := strings.Cut(eventType, ".")
	for _, s := range Subjects() {
		if s.Name == name && slices.Contains(s.Types(), eventType) {
			return s.Need, true
		}
	}
	return "", false
}

// Needs returns the permissions for reading events of the types.
func Needs(types []string) perm.Set {
	var needs []perm.Permission
	for _, one := range types {
		if need, known := Need(one); known {
			needs = append(needs, need)
		}
	}
	return perm.NewSet(needs...)
}

// Readable returns those of the given types that a caller with the permissions held may read.
func Readable(types []string, held perm.Set) []string {
	readable := []string{}
	for _, one := range types {
		if need, known := Need(one); known && held.Has(need) {
			readable = append(readable, one)
		}
	}
	return readable
}

// ReadableSubjects returns the names of the subjects whose events a caller with the permissions held may read.
func ReadableSubjects(held perm.Set) []string {
	names := []string{}
	for _, s := range Subjects() {
		if held.Has(s.Need) {
			names = append(names, s.Name)
		}
	}
	return names
}
