package app

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestForms_RetentionMonths(t *testing.T) {
	s := newService(t)
	h, f := s.form()
	path := formsPath + "/" + f.ID.String()
	s.get(path, h).has(t, `"retentionMonths":24`)
	a := s.do("POST", formsPath, h, strings.Replace(allTypes, "{", `{"retentionMonths":6,`, 1))
	a.wants(t, 201, `"retentionMonths":6`)
	s.patch(f, h, `{"retentionMonths":120}`).wants(t, 200, `"retentionMonths":120`)
	workspaceID, user := s.member(perm.EngageWriteForms)
	formsOnly := as(s.PAT(workspaceID, user, perm.EngageWriteForms).Reveal(), workspaceID).json()
	own := s.makeForm(formsOnly, allTypes)
	s.patch(own, formsOnly, `{"retentionMonths":1}`).expect(t, 403, "FORBIDDEN", "")
	s.patch(own, formsOnly, `{"title":"Another"}`).wants(t, 200)
	s.patch(f, h, `{"title":"Another"}`).has(t, `"retentionMonths":120`)
	const changed = `select count(*) from account.events where type = 'form.updated' and data ->> 'id' = $1
		and data -> 'changed' ? 'retentionMonths'`
	if n := s.Count(changed, f.ID.String()); n != 1 {
		t.Errorf("%d events", n)
	}
	for _, wrong := range []string{`0`, `121`, `-1`, `1.5`, `"24"`, `null`, `1e1`, `99999999999999999999`, `[]`} {
		if _, named := s.patch(f, h, `{"retentionMonths":`+wrong+`}`).fields(t)["retentionMonths"]; !named {
			t.Errorf("PATCH %s: not named", wrong)
		}
		a := s.do("POST", formsPath, h, strings.Replace(allTypes, "{", `{"retentionMonths":`+wrong+`,`, 1))
		if _, named := a.fields(t)["retentionMonths"]; !named {
			t.Errorf("POST %s: not named", wrong)
		}
	}
}

// The command counts the due records, and deletes them only when it is told to.
func TestRetentionCommand(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, user := s.member(perm.ProgrammesRead)
	s.Exec(`insert into resource.imports (id, tenant_id, user_id, status, finished_at)
		values (gen_random_uuid(), $1, $2, 'processed', $3)`, workspaceID, user, time.Now().AddDate(0, 0, -91))
	environ := []string{"ALMONER_DATABASE_URL=" + s.Database.Resourceapi}
	run := func(deletes, asJSON bool) string {
		t.Helper()
		var out bytes.Buffer
		if err := Retention(t.Context(), environ, deletes, asJSON, &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	var rows []struct {
		Kind     string
		Setting  string
		KeepDays *int
		Due      int
	}
	if err := json.Unmarshal([]byte(run(false, true)), &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Kind == "finished imports" && (r.Due != 1 || *r.KeepDays != 90 ||
			r.Setting != "ALMONER_RETENTION_IMPORTS_DAYS") {
			t.Errorf("%+v", r)
		}
	}
	if text := run(false, false); strings.Count(text, "\n") != len(rows)+1 ||
		!strings.Contains(text, "retentionMonths of the form") {
		t.Errorf("%s", text)
	}
	s.wantsRows(1, "resource.imports", "")
	if text := run(true, false); !strings.Contains(text, "finished imports") {
		t.Errorf("%s", text)
	}
	s.wantsRows(0, "resource.imports", "")
	wrong := append(environ, "ALMONER_RETENTION_IMPORTS_DAYS=-1")
	if err := Retention(t.Context(), wrong, false, false, &bytes.Buffer{}); err == nil {
		t.Error("a negative number of days is accepted")
	}
}
