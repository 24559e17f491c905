package app

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// apply runs the command with a file and returns its output.
func apply(t *testing.T, s *service, c ApplyCommand, file string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := c.Run(t.Context(), []string{"ALMONER_DATABASE_URL=" + s.Database.Resourceapi}, strings.NewReader(file), &out)
	return out.String(), err
}

func TestApply_CreatesAndChangesForms(t *testing.T) {
	s := newService(t)
	workspaceID, id := s.Workspace(), uuid.NewString()
	file := `clients: [{id: x, kind: service}]
forms:
  - id: ` + id + `
    workspace: ` + workspaceID.String() + `
    title: Volunteer
    retentionMonths: 12
    allowedOrigins: [https://www.example.org]
    fields:
      - {name: email, label: E-mail, type: email, required: true}
      - {name: area, label: Where, type: select, required: false, options: [Kitchen, Garden]}
`
	const stored = "select count(*) from resource.forms where id = $1 and tenant_id = $2 and title = $3"
	out, err := apply(t, s, ApplyCommand{DryRun: true}, file)
	if err != nil || !strings.Contains(out, "create  "+id) || !strings.Contains(out, "Dry run") ||
		strings.Contains(out, "embed key") || s.Count(stored, id, workspaceID, "Volunteer") != 0 {
		t.Errorf("dry run: %s %v", out, err)
	}
	out, err = apply(t, s, ApplyCommand{}, file)
	if err != nil || !strings.Contains(out, "embed key: alm_embed_") ||
		s.Count(stored, id, workspaceID, "Volunteer") != 1 {
		t.Errorf("%s %v", out, err)
	}
	if out, err = apply(t, s, ApplyCommand{}, file); err != nil || out != "0 created, 0 changed, 1 unchanged\n" {
		t.Errorf("again: %s %v", out, err)
	}
	renamed := strings.Replace(file, "Volunteer", "Help out", 1) + "    enabled: false\n"
	out, err = apply(t, s, ApplyCommand{DryRun: true}, renamed)
	if err != nil || !strings.Contains(out, "Help out: title, enabled\n") ||
		s.Count(stored, id, workspaceID, "Volunteer") != 1 {
		t.Errorf("dry run of a change: %s %v", out, err)
	}
	out, err = apply(t, s, ApplyCommand{JSON: true}, renamed)
	if err != nil || !strings.Contains(out, `"action": "change"`) || s.Count(stored, id, workspaceID, "Help out") != 1 {
		t.Errorf("change: %s %v", out, err)
	}
}

// A file with a mistake changes nothing, and the error names the mistake.
func TestApply_InvalidFileChangesNothing(t *testing.T) {
	s := newService(t)
	workspaceID, id := s.Workspace().String(), uuid.NewString()
	entry := func(id, title, name string) string {
		return "  - {id: " + id + ", workspace: " + workspaceID + ", title: " + title +
			", allowedOrigins: [], fields: [{name: " + name + ", label: A, type: text, required: false}]}\n"
	}
	if _, err := apply(t, s, ApplyCommand{}, "forms:\n"+entry(id, "One", "a")); err != nil {
		t.Fatal(err)
	}
	for file, words := range map[string]string{
		"":                                 "no forms",
		"form: []\n":                       "not valid",
		"forms: [{id: x}]\n":               "id must be a UUID",
		"forms:\n" + entry(id, "One", "b"): "choose a new id",
		"forms:\n" + entry(uuid.NewString(), "Two", "a") + entry(id, "One", "b"):            "choose a new id",
		"forms:\n" + entry(uuid.NewString(), "''", "a"):                                     "title: ",
		"forms:\n" + entry(id, "One", "a") + entry(id, "One", "a"):                          "earlier entry",
		"forms:\n" + strings.Replace(entry(id, "One", "a"), "title", "colour: x, title", 1): "colour",
	} {
		if _, err := apply(t, s, ApplyCommand{}, file); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", file, err, words)
		}
	}
	s.wantsRows(1, "resource.forms", "")
}

// A file that names an unknown workspace changes nothing, not even the forms before it.
func TestApply_UnknownWorkspaceChangesNothing(t *testing.T) {
	s := newService(t)
	unknown := uuid.NewString()
	entry := func(workspace, title string) string {
		return "  - {id: " + uuid.NewString() + ", workspace: " + workspace + ", title: " + title +
			", allowedOrigins: [], fields: [{name: a, label: A, type: text, required: false}]}\n"
	}
	good := "forms:\n" + entry(s.Workspace().String(), "One")
	for _, dry := range []bool{true, false} {
		out, err := apply(t, s, ApplyCommand{DryRun: dry}, good+entry(unknown, "Two"))
		if err == nil || out != "" ||
			!strings.Contains(err.Error(), `forms[1] ("Two"): there is no workspace `+unknown) {
			t.Errorf("%s %v", out, err)
		}
	}
	s.wantsRows(0, "resource.forms", "")
	if out, err := apply(t, s, ApplyCommand{}, good); err != nil {
		t.Errorf("%s %v", out, err)
	}
	s.wantsRows(1, "resource.forms", "created_by is null")
}
