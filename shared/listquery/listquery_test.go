package listquery

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
		values, problems := Parameters(raw, "fields", "limit")
		if got := Fields(values, problems, known); !slices.Equal(got, want) || len(problems) > 0 {
			t.Errorf("%q: %v, %v", raw, got, problems)
		}
	}
	for _, raw := range []string{"fields=", "fields=id,", "fields=ID", "fields=id,other", "fields=id&fields=id",
		"fields=%zz", "fields= id"} {
		values, problems := Parameters(raw, "fields")
		Fields(values, problems, known)
		if problems["fields"] == "" {
			t.Errorf("%q: no problem", raw)
		}
	}
	values, problems := Parameters("fields=id,other", "fields")
	Fields(values, problems, known)
	if !strings.Contains(problems["fields"], `"other"`) {
		t.Errorf("the unknown field is not named: %s", problems["fields"])
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
