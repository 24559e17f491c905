package rest

import (
	"slices"
	"strings"
	"testing"
)

func TestFields_SelectsInOrderOfRecord(t *testing.T) {
	t.Parallel()
	known := FieldsOf[struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		Extra *int   `json:"extra,omitempty"`
	}]()
	if !slices.Equal(known, []string{"id", "name", "extra"}) {
		t.Fatal(known)
	}
	for raw, want := range map[string][]string{
		"":                     nil,
		"fields=id":            {"id"},
		"fields=name,id,name":  {"id", "name"},
		"fields=id%2Cextra":    {"id", "extra"},
		"limit=3&fields=extra": {"extra"},
	} {
		p := ReadParameters(raw, "fields", "limit")
		if got := p.Fields(known); !slices.Equal(got, want) || len(p.Problems) > 0 {
			t.Errorf("%q: %v, %v", raw, got, p.Problems)
		}
	}
	for _, raw := range []string{"fields=", "fields=id,", "fields=ID", "fields=id,other", "fields=id&fields=id",
		"fields=%zz", "fields= id"} {
		p := ReadParameters(raw, "fields")
		p.Fields(known)
		if p.Problems["fields"] == "" {
			t.Errorf("%q: no problem", raw)
		}
	}
	p := ReadParameters("fields=id,other", "fields")
	p.Fields(known)
	if !strings.Contains(p.Problems["fields"], `"other"`) {
		t.Errorf("the unknown field is not named: %s", p.Problems["fields"])
	}
}

func TestProject_KeepsBytesOfValues(t *testing.T) {
	t.Parallel()
	record := `{"id":"1","name":"a<b\u2028","n":1.50,"none":null,"deep":{"x":[1,2]}}`
	got, err := Project([]byte("["), []byte(record), []string{"name", "n", "none", "deep", "absent"})
	if want := `[{"name":"a<b\u2028","n":1.50,"none":null,"deep":{"x":[1,2]}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}
