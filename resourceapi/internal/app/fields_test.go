package app

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// membersOf returns the names of the members of the first record of a list.
func membersOf(t *testing.T, a answer) []string {
	t.Helper()
	var page struct{ Data []map[string]json.RawMessage }
	a.decode(t, &page)
	if a.Status != 200 || len(page.Data) == 0 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return slices.Sorted(maps.Keys(page.Data[0]))
}

func TestFields_SelectMembersOfRecords(t *testing.T) {
	s := newService(t)
	_, ofForms := s.workspace()
	workspaceID, ofProgrammes := s.editor()
	s.Programmes(workspaceID, 3)
	f := s.makeForm(ofForms, allTypes)
	s.accepted(f)
	for path, h := range map[string]header{
		listPath:  ofProgrammes,
		formsPath: ofForms,
		formsPath + "/" + f.ID.String() + "/submissions": ofForms,
	} {
		every := membersOf(t, s.get(path, h))
		for _, name := range every {
			if got := membersOf(t, s.get(path+"?fields="+name, h)); !slices.Equal(got, []string{name}) {
				t.Errorf("%s?fields=%s: %v", path, name, got)
			}
		}
		if got := membersOf(t, s.get(path+"?fields="+strings.Join(every, ","), h)); !slices.Equal(got, every) {
			t.Errorf("%s: %v, want %v", path, got, every)
		}
		for _, wrong := range []string{"", "other", every[0] + ",other", every[0] + ",", strings.ToUpper(every[0])} {
			a := s.get(path+"?fields="+wrong, h)
			if a.Status != 400 || a.code(t) != "VALIDATION_ERROR" || !strings.Contains(a.Body, `"fields":{"fields":`) {
				t.Errorf("%s?fields=%s: %d %s", path, wrong, a.Status, a.Body)
			}
		}
		s.get(path+"?fields=id,other", h).has(t, `other`)
	}
	all := slices.Sorted(slices.Values(programme.Fields()))
	s.create(ofProgrammes, `{"name":"x","externalId":"crm/7"}`)
	if every := membersOf(t, s.get(listPath, ofProgrammes)); !slices.Equal(every, all) {
		t.Errorf("programme.Fields: %v, want %v", all, every)
	}
	first := s.get(listPath+"?limit=2&fields=id", ofProgrammes)
	var page struct {
		Meta struct{ NextCursor string }
	}
	first.decode(t, &page)
	next := s.get(listPath+"?limit=2&fields=name&cursor="+page.Meta.NextCursor, ofProgrammes)
	if !slices.Equal(membersOf(t, next), []string{"name"}) || page.Meta.NextCursor == "" {
		t.Errorf("the second page: %s", next.Body)
	}
}
