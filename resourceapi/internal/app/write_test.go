package app

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// editor creates a workspace and the headers of a member who may read and write its programmes.
func (s *service) editor() (uuid.UUID, header) {
	s.t.Helper()
	workspaceID, user := s.member(perm.ProgrammesRead, perm.ProgrammesWrite)
	return workspaceID, as(
		s.PAT(workspaceID, user, perm.ProgrammesRead, perm.ProgrammesWrite).Reveal(),
		workspaceID,
	).json()
}

type one struct {
	ID                    uuid.UUID
	Name, Summary, Status string
	StartsOn, EndsOn      *string
	CreatedAt, UpdatedAt  string
}

func (s *service) create(h header, body string) one {
	s.t.Helper()
	a := s.do("POST", listPath, h, body)
	if a.Status != 201 {
		s.t.Fatalf("create: %d %s", a.Status, a.Body)
	}
	var p one
	a.decode(s.t, &p)
	return p
}

func TestProgrammes_CreateReadAndChange(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	a := s.do("POST", listPath, h, `{"name":"Warm Homes","summary":"Advice","startsOn":"2026-04-01","endsOn":null}`)
	var p one
	a.decode(t, &p)
	if a.Status != 201 || p.Name != "Warm Homes" || p.Summary != "Advice" || p.Status != "draft" || p.StartsOn == nil ||
		*p.StartsOn != "2026-04-01" || p.EndsOn != nil {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	path := listPath + "/" + p.ID.String()
	if a.Header.Get("Location") != base+path || a.Header.Get("ETag") == "" {
		t.Errorf("%v", a.Header)
	}
	read := s.get(path, h)
	if read.Status != 200 || strings.TrimSpace(read.Body) != strings.TrimSpace(a.Body) ||
		read.Header.Get("ETag") != a.Header.Get("ETag") {
		t.Errorf("%d %s\nmade: %s", read.Status, read.Body, a.Body)
	}
	changed := s.do("PATCH", path, h, `{"summary":"Advice at home","endsOn":"2026-09-30"}`)
	changed.decode(t, &p)
	if changed.Status != 200 || p.Name != "Warm Homes" || p.Summary != "Advice at home" || p.EndsOn == nil ||
		*p.EndsOn != "2026-09-30" || p.UpdatedAt <= p.CreatedAt {
		t.Errorf("%d %s", changed.Status, changed.Body)
	}
	if changed.Header.Get("ETag") == read.Header.Get("ETag") {
		t.Error("another version has the same entity tag")
	}
	if again := s.get(path, h); strings.TrimSpace(again.Body) != strings.TrimSpace(changed.Body) {
		t.Errorf("%s", again.Body)
	}
	s.do("PATCH", path, h, `{"endsOn":null}`).decode(t, &p)
	if p.EndsOn != nil || p.StartsOn == nil {
		t.Errorf("%+v", p)
	}
	before := s.get(path, h)
	for _, same := range []string{`{}`, `{"startsOn":"2026-04-01","endsOn":null,"name":"Warm Homes"}`} {
		nothing := s.do("PATCH", path, h, same)
		if nothing.Status != 200 || nothing.Body != before.Body ||
			nothing.Header.Get("ETag") != before.Header.Get("ETag") {
			t.Errorf("%s: %d %s %s", same, nothing.Status, nothing.Body, nothing.Header.Get("ETag"))
		}
	}
}

func TestProgrammes_InvalidBodyNamesField(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	path := listPath + "/" + s.create(h, `{"name":"Warm Homes","startsOn":"2026-04-01"}`).ID.String()
	before := s.get(path, h)
	long := strings.Repeat("é", 201)
	for _, c := range []struct{ method, path, body, field string }{
		{"POST", listPath, `{}`, "name"},
		{"POST", listPath, `{"name":""}`, "name"},
		{"POST", listPath, `{"name":"  "}`, "name"},
		{"POST", listPath, `{"name":7}`, "name"},
		{"POST", listPath, `{"name":null}`, "name"},
		{"POST", listPath, `{"name":["x"]}`, "name"},
		{"POST", listPath, `{"name":"x","Name":"x"}`, "Name"},
		{"POST", listPath, `{"name":"` + long + `"}`, "name"},
		{"POST", listPath, `{"name":"a\nb"}`, "name"},
		{"POST", listPath, `{"name":"a\u0000b"}`, "name"},
		{"POST", listPath, `{"name":"x","summary":"\u0000"}`, "summary"},
		{"POST", listPath, `{"name":"x","summary":null}`, "summary"},
		{"POST", listPath, `{"name":"x","status":"open"}`, "status"},
		{"POST", listPath, `{"name":"x","status":null}`, "status"},
		{"POST", listPath, `{"name":"x","startsOn":"1 April 2026"}`, "startsOn"},
		{"POST", listPath, `{"name":"x","startsOn":"2026-02-30"}`, "startsOn"},
		{"POST", listPath, `{"name":"x","startsOn":"2026-4-1"}`, "startsOn"},
		{"POST", listPath, `{"name":"x","startsOn":"0000-01-01"}`, "startsOn"},
		{"POST", listPath, `{"name":"x","startsOn":20260401}`, "startsOn"},
		{"POST", listPath, `{"name":"x","startsOn":"2026-04-02","endsOn":"2026-04-01"}`, "endsOn"},
		{"PATCH", path, `{"status":"active"}`, "status"},
		{"PATCH", path, `{"status":"draft"}`, "status"},
		{"PATCH", path, `{"name":"y","status":null}`, "status"},
		{"PATCH", path, `{"name":"y","status":""}`, "status"},
		{"PATCH", path, `{"name":null}`, "name"},
		{"PATCH", path, `{"name":" "}`, "name"},
		{"PATCH", path, `{"endsOn":"2026-03-31"}`, "endsOn"},
		{"PATCH", path, `{"endsOn":false}`, "endsOn"},
		{"POST", path + "/transitions", `{}`, "to"},
		{"POST", path + "/transitions", `{"to":"open"}`, "to"},
		{"POST", path + "/transitions", `{"to":1}`, "to"},
		{"POST", path + "/transitions", `{"to":"Active"}`, "to"},
		{"POST", path + "/transitions", `{"to":null}`, "to"},
	} {
		a := s.do(c.method, c.path, h, c.body)
		var body struct {
			Error struct{ Fields map[string]string }
		}
		a.decode(t, &body)
		if a.Status != 400 || a.code(t) != "VALIDATION_ERROR" || len(body.Error.Fields) != 1 ||
			body.Error.Fields[c.field] == "" {
			t.Errorf("%s %s: %d %s, want a message on %s only", c.method, c.body, a.Status, a.Body, c.field)
		}
	}
	s.wantsUnchanged(path, h, before, 1)
}

// wantsUnchanged checks that refused writes left the record as it was before, and n programmes.
func (s *service) wantsUnchanged(path string, h header, before answer, n int) {
	s.t.Helper()
	s.get(path, h).wants(s.t, 200, before.Body).header(s.t, "ETag", before.Header.Get("ETag"))
	s.wantsRows(n, "resource.programmes", "")
}

func TestProgrammes_RefusesMalformedDocument(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	path := listPath + "/" + s.create(h, `{"name":"Warm Homes"}`).ID.String()
	before := s.get(path, h)
	for _, body := range []string{
		"", "null", "[]", `"x"`, "7", `{`, `{"name":"x"`, `{"name":"x"}}`, `{"name":"x"}{"name":"y"}`,
		`{"name":"x"} rubbish`, `{"name":"x","name":"y"}`, `{"name":"x",}`, `{"name":"` + "\xff" + `"}`, `{name:"x"}`,
		"\ufeff" + `{"name":"x"}`, `{"name":"x","a":{}`,
	} {
		s.do("POST", listPath, h, body).expect(t, 400, "VALIDATION_ERROR", "")
		s.do("PATCH", path, h, body).expect(t, 400, "VALIDATION_ERROR", "")
		transition := strings.NewReplacer("name", "to", `"x"`, `"active"`, `"y"`, `"active"`).Replace(body)
		s.do("POST", path+"/transitions", h, transition).expect(t, 400, "VALIDATION_ERROR", "")
	}
	for _, kind := range []string{
		"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1",
		"application/json, text/plain",
	} {
		s.do("POST", listPath, h.with("Content-Type", kind), `{"name":"x"}`).wants(t, 400)
	}
	typed := h.with("Content-Type", "Application/JSON; charset=UTF-8")
	s.do("POST", listPath, typed, `{"name":"x"}`).wants(t, 201)
	large := `{"name":"x","summary":"` + strings.Repeat("a", 70_000) + `"}`
	s.do("POST", listPath, h, large).expect(t, 413, "PAYLOAD_TOO_LARGE", "")
	s.wantsUnchanged(path, h, before, 2)
}

func TestIfMatch_RefusesChangeOfAnotherVersion(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	path := listPath + "/" + s.create(h, `{"name":"Warm Homes"}`).ID.String()
	first := s.get(path, h).Header.Get("ETag")
	for _, matching := range []string{
		first,
		"*",
		`"nothing", ` + first,
		` ` + first + ` `,
		first + ",",
		`,, "a,b" ,` + first,
		"W/" + first,
		`"nothing", W/` + first,
	} {
		now := s.get(path, h).Header.Get("ETag")
		value := strings.ReplaceAll(matching, first, now)
		s.do("PATCH", path, h.with("If-Match", value), `{"summary":"`+uuid.NewString()+`"}`).wants(t, 200)
	}
	now := s.get(path, h)
	for _, stale := range []string{first, `W/` + first, `"x"`, `"a", "b"`, `"a,b"`, `"a",`} {
		s.do("PATCH", path, h.with("If-Match", stale), `{"name":"Lost"}`).expect(t, 412, "PRECONDITION_FAILED", "")
	}
	for _, wrong := range []string{"", "3", `"`, "w/" + first, `"a" "b"`, `"a`, `,`, `*, "a"`} {
		s.do("PATCH", path, h.with("If-Match", wrong), `{"name":"Lost"}`).wants(t, 400)
	}
	s.do("POST", path+"/transitions", h.with("If-Match", first), `{"to":"active"}`).wants(t, 412)
	if after := s.get(path, h); after.Body != now.Body {
		t.Errorf("%s", after.Body)
	}
}

func TestIfNoneMatch_KnownVersionIs304(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	_, editor := s.editor()
	for _, record := range []struct {
		path   string
		h      header
		change string
	}{
		{formsPath + "/" + s.makeForm(h, allTypes).ID.String(), h, `{"title":"Another"}`},
		{listPath + "/" + s.create(editor, `{"name":"Warm Homes"}`).ID.String(), editor, `{"name":"Another"}`},
	} {
		tag := s.get(record.path, record.h).Header.Get("ETag")
		for _, seen := range []string{tag, "W/" + tag, "*", `"x", ` + tag} {
			a := s.get(record.path, record.h.with("If-None-Match", seen))
			if a.Status != 304 || a.Body != "" || a.Header.Get("ETag") != tag ||
				a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %s %v", seen, a.Status, a.Body, a.Header)
			}
			s.do("PATCH", record.path, record.h.with("If-None-Match", seen), record.change).wants(t, 412)
		}
		for name, wants := range map[string]map[string]int{
			"If-None-Match": {`"x"`: 200, "x": 400},
			"If-Match":      {`"x"`: 412, tag: 200, "W/" + tag: 200, "x": 400},
		} {
			for value, status := range wants {
				if a := s.get(record.path, record.h.with(name, value)); a.Status != status ||
					(status == 200) != strings.Contains(a.Body, `"createdAt"`) {
					t.Errorf("%s: %s: %d %s", name, value, a.Status, a.Body)
				}
			}
		}
		both := record.h.with("If-Match", tag).with("If-None-Match", `"x"`)
		s.do("PATCH", record.path, both, record.change).wants(t, 200)
		s.get(record.path, record.h.with("If-None-Match", tag)).wants(t, 200)
	}
}

func TestIfMatch_ConcurrentChangesHaveOneWinner(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	_, h := s.editor()
	path := listPath + "/" + s.create(h, `{"name":"Warm Homes"}`).ID.String()
	tag := s.get(path, h).Header.Get("ETag")
	// The row is locked until the first request waits for it; the others wait there too, or for a turn.
	s.Exec("begin")
	s.Exec("select 1 from resource.programmes where {mine} for update")
	statuses := make([]int, 3)
	var group sync.WaitGroup
	for i := range statuses {
		group.Go(func() {
			statuses[i] = s.do("PATCH", path, h.with("If-Match", tag), fmt.Sprintf(`{"name":"Change %d"}`, i)).Status
		})
	}
	s.awaitLocks(1)
	s.Exec("commit")
	group.Wait()
	slices.Sort(statuses)
	if !slices.Equal(statuses, []int{200, 412, 412}) {
		t.Errorf("%v", statuses)
	}
}

// awaitLocks waits until n sessions of this database wait for a lock.
func (s *service) awaitLocks(n int) {
	s.t.Helper()
	await.True(s.t, fmt.Sprintf("%d sessions wait for a lock", n), func() bool {
		return s.locksAwaited() >= n
	})
}

// locksAwaited counts the sessions of this database that wait for a lock.
func (s *service) locksAwaited() int {
	s.t.Helper()
	s.Exec("select pg_stat_clear_snapshot()")
	return s.Count(`select count(distinct pid) from ` + testkit.Locks + ` where not granted`)
}

func TestP2_TransitionsOverHTTP(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	allowed := map[string]bool{
		"draft active":       true,
		"draft archived":     true,
		"active completed":   true,
		"completed archived": true,
	}
	statuses := []string{"draft", "active", "completed", "archived"}
	for _, from := range statuses {
		for _, to := range statuses {
			p := s.create(h, `{"name":"x","status":"`+from+`"}`)
			a := s.do("POST", listPath+"/"+p.ID.String()+"/transitions", h, `{"to":"`+to+`"}`)
			after := s.get(listPath+"/"+p.ID.String(), h)
			if allowed[from+" "+to] {
				if a.Status != 200 || after.Body != a.Body+"\n" && after.Body != a.Body ||
					!strings.Contains(a.Body, `"status":"`+to+`"`) || a.Header.Get("ETag") == "" {
					t.Errorf("%s to %s: %d %s", from, to, a.Status, a.Body)
				}
			} else if a.Status != 409 || a.code(t) != "CONFLICT" ||
				!strings.Contains(after.Body, `"status":"`+from+`"`) {
				t.Errorf("%s to %s: %d %s, now %s", from, to, a.Status, a.Body, after.Body)
			}
		}
	}
}

// Step 6: records of another workspace are as unknown as those that do not exist.
func TestProgrammes_RecordOfAnotherWorkspaceIs404(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	_, elsewhere := s.editor()
	theirs := s.create(elsewhere, `{"name":"Theirs"}`).ID.String()
	imported := s.importCSV(elsewhere, "name\nx\n")
	bodies := map[string]bool{}
	for _, id := range []string{theirs, uuid.NewString(), "x", "%2e%2e", strings.ToUpper(theirs), "{" + theirs + "}"} {
		for _, c := range []struct{ method, path, body string }{
			{"GET", listPath + "/" + id, ""},
			{"PATCH", listPath + "/" + id, `{"name":"Mine"}`},
			{"PATCH", listPath + "/" + id, `{}`},
			{"POST", listPath + "/" + id + "/transitions", `{"to":"active"}`},
			{"GET", listPath + "/imports/" + id, ""},
		} {
			a := s.do(c.method, c.path, h, c.body)
			a.expect(t, 404, "NOT_FOUND", "")
			bodies[a.Body] = true
		}
	}
	s.get(imported, h).expect(t, 404, "NOT_FOUND", "")
	if len(bodies) != 1 {
		t.Errorf("the responses distinguish records: %v", bodies)
	}
	s.get(listPath+"/"+theirs, elsewhere).has(t, `"name":"Theirs"`, `"draft"`)
	s.do("PATCH", listPath+"/x", h, `{"name":""}`).wants(t, 400)
}

func TestProgrammes_ReadAndWriteRequireTheirPermissions(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead, perm.ProgrammesWrite)
	reader := as(s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal(), workspaceID).json()
	writer := as(s.PAT(workspaceID, user, perm.ProgrammesWrite).Reveal(), workspaceID).json()
	path := listPath + "/" + s.create(writer, `{"name":"x"}`).ID.String()
	before := s.get(path, reader)
	for _, c := range []struct {
		method, path string
		h            header
	}{
		{"GET", listPath, writer},
		{"GET", path, writer},
		{"POST", listPath, reader},
		{"PATCH", path, reader},
		{"POST", path + "/transitions", reader},
		{"POST", listPath + "/imports", reader},
		{"GET", listPath + "/imports/" + uuid.NewString(), reader},
	} {
		for _, body := range []string{`{"to":"active"}`, `{"name":"y"}`} {
			s.do(c.method, c.path, c.h, body).expect(t, 403, "FORBIDDEN", "")
		}
	}
	csv := reader.with("Content-Type", "text/csv")
	s.do("POST", listPath+"/imports", csv, "name\nx\n").expect(t, 403, "FORBIDDEN", "")
	s.wantsUnchanged(path, reader, before, 1)
	s.wantsRows(0, "resource.imports", "")
}
