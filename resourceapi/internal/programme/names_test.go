package programme

import "testing"

func TestChange_AcceptsStoredInvalidNameUnlessChanged(t *testing.T) {
	stored := Programme{Details: Details{Name: "\u200b", Status: Draft}}
	summary, name := "What it is for", "\u3164"
	if p, err := (Change{Summary: &summary}).Apply(stored); err != nil || p.Summary != summary ||
		p.Name != stored.Name {
		t.Errorf("%+v, %v", p, err)
	}
	if err := (Change{Name: &name}).Check(); err == nil {
		t.Error("an invisible name is accepted in a change")
	}
	for _, name := range []string{"\u200b", "\u3164", "x\u202ey"} {
		if (Details{Name: name, Status: Draft}).Check() == nil {
			t.Errorf("%+q is accepted", name)
		}
		if rows, _, wrong := ReadImport("name\n" + name + "\n"); len(wrong) != 1 || wrong[0].Field != FieldName ||
			rows != nil {
			t.Errorf("%+q in an import: %v %v", name, rows, wrong)
		}
	}
}
