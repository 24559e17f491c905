package mcp

import (
	"maps"
	"slices"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The description says which permission each tool demands, for rehearsals.
func TestTools_DemandWhatIsDescribed(t *testing.T) {
	document, err := openapi.New("https://api.example.org")
	if err != nil {
		t.Fatal(err)
	}
	operation, _ := document.Find("POST", Path)
	described, tools := operation.Tools(), New(Deps{}).tools
	if !slices.Equal(slices.Sorted(maps.Keys(described)), slices.Sorted(maps.Keys(tools))) {
		t.Errorf("described tools %v", described)
	}
	for name, tool := range tools {
		var needs perm.Set
		if tool.need != "" {
			needs = perm.NewSet(tool.need)
		}
		if described[name].Scope() != needs.Scope() {
			t.Errorf("%s needs %v, described %v", name, needs, described[name])
		}
	}
}
