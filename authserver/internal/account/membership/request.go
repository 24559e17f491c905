package membership

import (
	"strings"

	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/spelling"
)

// ParseEmail returns an address in its canonical spelling, in which it is stored, or a *Refusal.
func ParseEmail(text string) (string, error) {
	email, ok := spelling.Email(text)
	if !ok || strings.HasSuffix(email, "@deleted.invalid") { // the addresses of deleted users
		return "", &Refusal{"email", "Enter an e-mail address such as ada@example.org."}
	}
	return email, nil
}

// ParsePermissions returns the permissions with these identifiers, or a *Refusal.
func ParsePermissions(identifiers []string) (perm.Set, error) {
	set := perm.FromStrings(identifiers)
	if len(set) == 0 {
		return nil, &Refusal{"permissions", "Choose at least one permission."}
	}
	for _, p := range set {
		if !perm.Known(p) {
			return nil, &Refusal{"permissions", "One of the permissions is unknown."}
		}
	}
	return set, nil
}

// A Preset is a named list of permissions that a form offers as a starting point.
type Preset struct {
	Name        string // in forms
	Title       string
	Permissions perm.Set
}

// Presets returns the presets, from the least to the most.
func Presets() []Preset {
	sees := perm.NewSet(perm.ProgrammesRead)
	runsForms := perm.NewSet(perm.EngageReadForms, perm.EngageWriteForms, perm.EngageReadSubmissions)
	administers := perm.NewSet(perm.AccountAPIAccess, perm.AccountReadMembers, perm.AccountWriteMembers)
	return []Preset{
		{"sees", "Sees programmes", sees},
		{"runs", "Runs programmes", sees.Union(perm.NewSet(perm.ProgrammesWrite))},
		{"forms", "Runs forms", runsForms},
		{"administers", "Administers", administers},
	}
}
