package perm

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestRegistry_EntriesAreComplete(t *testing.T) {
	pattern := regexp.MustCompile(`^[a-z]+:[a-z]+:[a-z]+$`)
	for _, entry := range All() {
		if !pattern.MatchString(string(entry.ID)) {
			t.Errorf("%s is not <module>:<action>:<resource>", entry.ID)
		}
		if entry.Title == "" || len(entry.Sentence) < 20 || !strings.HasSuffix(entry.Sentence, ".") {
			t.Errorf("%s has no title or sentence", entry.ID)
		}
		if entry.Risk < Low || entry.Risk > High {
			t.Errorf("%s has no risk", entry.ID)
		}
		if entry.Needs != "" && !Known(entry.Needs) {
			t.Errorf("%s needs %s, which is unknown", entry.ID, entry.Needs)
		}
		if strings.Contains(string(entry.ID), ":write:") && entry.Needs == "" {
			t.Errorf("%s is a write without the read that it needs", entry.ID)
		}
	}
}

// Permissions of account are never given to a connector (contract, section 8).
func TestForConnectors_ExcludesAccount(t *testing.T) {
	if len(ForConnectors()) == 0 {
		t.Error("empty")
	}
	for _, p := range ForConnectors() {
		if p.Module() == "account" {
			t.Error(p)
		}
	}
}

func TestModules_AreThoseOfPermissions(t *testing.T) {
	modules := Modules()
	if !slices.Contains(modules, "programmes") || !slices.Contains(modules, "engage") ||
		slices.Contains(modules, "account") || !slices.Equal(modules, slices.Compact(slices.Clone(modules))) {
		t.Error(modules)
	}
}

func TestHas_ComparesExactly(t *testing.T) {
	set := NewSet(ProgrammesRead)
	for _, other := range []Permission{
		"Programmes:read:programmes", "programmes:read:programmes ", "programmes:*:programmes", "programmes:read",
	} {
		if set.Has(other) || Known(other) {
			t.Errorf("%q taken for %q", other, ProgrammesRead)
		}
	}
}

func TestScope_RoundTripsInRegistryOrder(t *testing.T) {
	set := ParseScope("  programmes:write:programmes programmes:read:programmes   programmes:read:programmes ")
	if got := set.Scope(); got != "programmes:read:programmes programmes:write:programmes" {
		t.Errorf("scope %q", got)
	}
	if len(ParseScope(" ")) != 0 || ParseScope("").Strings() == nil {
		t.Error("an empty scope is the empty set")
	}
	if ParseScope("a\tb").Has("a") {
		t.Error("only a space separates")
	}
}

func TestSet_Operations(t *testing.T) {
	a, b := NewSet(ProgrammesRead, ProgrammesWrite), NewSet(ProgrammesWrite, AccountAPIAccess)
	if got := a.Intersect(b).Scope(); got != "programmes:write:programmes" {
		t.Errorf("intersect: %s", got)
	}
	if got := a.Without(b).Scope(); got != "programmes:read:programmes" {
		t.Errorf("without: %s", got)
	}
	if a.HasAll(b) || !a.HasAll(NewSet(ProgrammesRead)) || !a.HasAll(nil) {
		t.Error("HasAll")
	}
}

// A scope contains the words between spaces, each once, and parsing it again gives the same set.
func FuzzScope(f *testing.F) {
	for _, seed := range []string{
		"", " ", "programmes:read:programmes", " offline_access  programmes:read:programmes ", "a\tb", "b a b",
		"\u00a0 \xff", "account:api:access engage:read:forms",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, scope string) {
		set, words := ParseScope(scope), map[Permission]bool{}
		for word := range strings.SplitSeq(scope, " ") {
			if word != "" {
				words[Permission(word)] = true
			}
		}
		if len(set) != len(words) {
			t.Errorf("%q: %q", scope, set)
		}
		for _, p := range set {
			if !words[p] {
				t.Errorf("%q: %q", scope, set)
			}
		}
		if again := ParseScope(set.Scope()); !slices.Equal(again, set) {
			t.Errorf("%q: %q, then %q", scope, set, again)
		}
		for _, p := range set.Intersect(ForConnectors()) {
			if !Known(p) || p == AccountAPIAccess {
				t.Errorf("%q: %q is allowed for connectors", scope, p)
			}
		}
	})
}

func TestPermission_ModuleAndReads(t *testing.T) {
	for p, want := range map[Permission]struct{ ofModule, reads bool }{
		"":                      {},
		AccountAPIAccess:        {},
		AccountReadMembers:      {reads: true},
		ProgrammesRead:          {ofModule: true, reads: true},
		ProgrammesWrite:         {ofModule: true},
		"programmes:read":       {ofModule: true},
		"programmes:write:read": {ofModule: true},
	} {
		if p.OfModule() != want.ofModule || p.Reads() != want.reads {
			t.Errorf("%q: of a module %t, reads %t", p, p.OfModule(), p.Reads())
		}
	}
}

func TestDescribe_KnowsEntriesAlone(t *testing.T) {
	for _, entry := range All() {
		if found, known := Describe(entry.ID); !known || found.ID != entry.ID {
			t.Errorf("%s: %v %t", entry.ID, found, known)
		}
	}
	if found, known := Describe("programmes:read:other"); known || found.ID != "" {
		t.Errorf("unknown: %v", found)
	}
}

func TestSet_NeedsAndOfAccount(t *testing.T) {
	set := NewSet(ProgrammesWrite, AccountAPIAccess, ProgrammesRead)
	if got := set.Needs(); !slices.Equal(got, NewSet(ProgrammesRead)) {
		t.Errorf("needs %v", got)
	}
	if got := set.OfAccount(); !slices.Equal(got, NewSet(AccountAPIAccess)) {
		t.Errorf("of account %v", got)
	}
}

func TestUsable_KeepsPermissionsOfResource(t *testing.T) {
	everything := FromStrings(nil)
	for _, entry := range All() {
		everything = everything.Union(NewSet(entry.ID))
	}
	for identifier, want := range map[string]string{
		"https://api.example.org/v1":       ForConnectors().Scope(),
		"http://localhost:8080/v1":         ForConnectors().Scope(),
		"https://api.example.org/mcp":      "programmes:read:programmes",
		"http://[::1]:8080/mcp":            "programmes:read:programmes",
		"https://api.example.org/mcp/":     "",
		"https://api.example.org/mcp?x=/v": "",
		"https://api.example.org":          "",
		"/mcp":                             "",
		"":                                 "",
	} {
		if got := everything.Usable(identifier).Scope(); got != want {
			t.Errorf("%q: %q, want %q", identifier, got, want)
		}
	}
	if got := NewSet(ProgrammesWrite).Usable("https://api.example.org/mcp"); len(got) != 0 {
		t.Errorf("the set gained %s", got.Scope())
	}
}

func TestForConnectors_IncludesReadsOfWrites(t *testing.T) {
	for _, resource := range []Resource{API, MCP} {
		set := resource.ForConnectors()
		if len(set) == 0 || set.Has(AccountAPIAccess) || !set.HasAll(set.Needs()) {
			t.Errorf("%s: %s", resource, set.Scope())
		}
		set[0] = "changed"
		if slices.Contains(resource.ForConnectors(), "changed") {
			t.Errorf("%s: the set is shared", resource)
		}
	}
}

func TestIdentifiers_AreBelowBaseURL(t *testing.T) {
	got := Identifiers("https://api.example")
	if !slices.Equal(got, []string{"https://api.example/v1", "https://api.example/mcp"}) {
		t.Error(got)
	}
	all := FullSet()
	for _, identifier := range append(got, "https:///v1") {
		usable := all.Usable(identifier)
		if hasHost := identifier != "https:///v1"; (len(usable) > 0) != hasHost {
			t.Errorf("%s: %v", identifier, usable)
		}
	}
}
