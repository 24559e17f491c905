package perm

import (
	"slices"
	"testing"
)

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
