package app

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// editor creates a workspace and returns the headers of a member who may read and write its programmes.
func (s *service) editor() header {
	s.t.Helper()
	return s.newHolder(perm.ProgrammesRead, perm.ProgrammesWrite)
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
	return decoded[one](s.t, a)
}

func TestProgrammes_CreateReadAndChange(t *testing.T) {
	s, h := newEditor(t)
	a := s.do("POST", listPath, h, `{"name":"Warm Homes","summary":"Advice","startsOn":"2026-04-01","endsOn":null}`)
	path := listPath + "/" + decoded[one](t, a).ID.String()
	a.wants(t, 201, `"name":"Warm Homes","summary":"Advice","status":"draft","startsOn":"2026-04-01","endsOn":null`).
		header(t, "Location", base+path).header(t, "ETag", "*")
	read := s.get(path, h).wants(t, 200).is(t, a.Body).header(t, "ETag", a.Header.Get("ETag"))
	changed := s.do("PATCH", path, h, `{"summary":"Advice at home","endsOn":"2026-09-30"}`).
		wants(t, 200, `"name":"Warm Homes","summary":"Advice at home"`, `"endsOn":"2026-09-30"`)
	if p := decoded[one](t, changed); p.UpdatedAt <= p.CreatedAt ||
		changed.Header.Get("ETag") == read.Header.Get("ETag") {
		t.Errorf("another version has the same time or entity tag: %+v", p)
	}
	s.get(path, h).is(t, changed.Body)
	s.do("PATCH", path, h, `{"endsOn":null}`).has(t, `"startsOn":"2026-04-01","endsOn":null`)
	before := s.get(path, h)
	for _, same := range []string{`{}`, `{"startsOn":"2026-04-01","endsOn":null,"name":"Warm Homes"}`} {
		s.do("PATCH", path, h, same).wants(t, 200).is(t, before.Body).header(t, "ETag", before.Header.Get("ETag"))
	}
	moved := s.do("POST", path+"/transitions", h, `{"to":"active"}`).wants(t, 200, `"status":"active"`)
	s.do("POST", path+"/transitions", h, `{"to":"draft"}`).refuses(t, 409, "CONFLICT")
	s.get(path, h).is(t, moved.Body).header(t, "ETag", moved.header(t, "ETag", "*").Header.Get("ETag"))
}

func TestProgrammes_InvalidBodyNamesField(t *testing.T) {
	s, h := newEditor(t)
	path := listPath + "/" + s.create(h, `{"name":"Warm Homes","startsOn":"2026-04-01"}`).ID.String()
	before := s.get(path, h)
	long := strings.Repeat("é", 201)
	refuses := func(method, path, field string, bodies ...string) {
		t.Helper()
		for _, body := range bodies {
			s.do(method, path, h, body).namesOnly(t, field)
		}
	}
	refuses("POST", listPath, "name",
		`{}`, `{"name":""}`, `{"name":"  "}`, `{"name":7}`, `{"name":null}`, `{"name":["x"]}`, `{"name":"`+long+`"}`,
		`{"name":"a\nb"}`, `{"name":"a\u0000b"}`)
	refuses("POST", listPath, "Name", `{"name":"x","Name":"x"}`)
	refuses("POST", listPath, "summary", `{"name":"x","summary":"\u0000"}`, `{"name":"x","summary":null}`)
	refuses("POST", listPath, "status", `{"name":"x","status":"open"}`, `{"name":"x","status":null}`)
	refuses("POST", listPath, "startsOn",
		`{"name":"x","startsOn":"1 April 2026"}`, `{"name":"x","startsOn":"2026-02-30"}`,
		`{"name":"x","startsOn":"2026-4-1"}`, `{"name":"x","startsOn":"0000-01-01"}`,
		`{"name":"x","startsOn":20260401}`)
	refuses("POST", listPath, "endsOn", `{"name":"x","startsOn":"2026-04-02","endsOn":"2026-04-01"}`)
	refuses("PATCH", path, "status",
		`{"status":"active"}`, `{"status":"draft"}`, `{"name":"y","status":null}`, `{"name":"y","status":""}`)
	refuses("PATCH", path, "name", `{"name":null}`, `{"name":" "}`)
	refuses("PATCH", path, "endsOn", `{"endsOn":"2026-03-31"}`, `{"endsOn":false}`)
	refuses("POST", path+"/transitions", "to",
		`{}`, `{"to":"open"}`, `{"to":1}`, `{"to":"Active"}`, `{"to":null}`)
	s.wantsUnchanged(path, h, before, 1)
}

// wantsUnchanged checks that refused writes left the record as it was before, and n programmes.
func (s *service) wantsUnchanged(path string, h header, before answer, n int) {
	s.t.Helper()
	s.get(path, h).wants(s.t, 200, before.Body).header(s.t, "ETag", before.Header.Get("ETag"))
	s.wantsRows(n, "resource.programmes", "")
}

func TestProgrammes_RefusesMalformedDocument(t *testing.T) {
	s, h := newEditor(t)
	path := listPath + "/" + s.create(h, `{"name":"Warm Homes"}`).ID.String()
	before := s.get(path, h)
	for _, c := range [][3]string{
		{"POST", listPath, `{"name":"x"}`},
		{"PATCH", path, `{"name":"x"}`},
		{"POST", path + "/transitions", `{"to":"active"}`},
	} {
		valid := c[2]
		twice := strings.TrimSuffix(valid, "}") + "," + valid[1:]
		for _, body := range []string{"", "[]", valid + "}", valid + " {}", twice} {
			s.do(c[0], c[1], h, body).expect(t, 400, "VALIDATION_ERROR", "").namesOnly(t)
		}
	}
	for _, kind := range []string{
		"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1",
		"application/json, text/plain",
	} {
		s.do("POST", listPath, h.with("Content-Type", kind), `{"name":"x"}`).wants(t, 400)
	}
	untyped := header{"Authorization": h["Authorization"], "X-Tenant-Id": h["X-Tenant-Id"]}
	s.do("POST", listPath, untyped, `{"name":"x"}`).wants(t, 400)
	typed := h.with("Content-Type", "Application/JSON; charset=UTF-8")
	s.do("POST", listPath, typed, `{"name":"x"}`).wants(t, 201)
	large := `{"name":"x","summary":"` + strings.Repeat("a", 70_000) + `"}`
	s.do("POST", listPath, h, large).expect(t, 413, "PAYLOAD_TOO_LARGE", "")
	s.wantsUnchanged(path, h, before, 2)
}

func TestIfMatch_RefusesChangeOfAnotherVersion(t *testing.T) {
	s, h := newEditor(t)
	path := listPath + "/" + s.create(h, `{"name":"Warm Homes"}`).ID.String()
	first := s.get(path, h).Header.Get("ETag")
	for _, matching := range []string{
		first, "*", `"nothing", ` + first, ` ` + first + ` `, first + ",", `,, "a,b" ,` + first, "W/" + first,
		`"nothing", W/` + first,
	} {
		value := strings.ReplaceAll(matching, first, s.get(path, h).Header.Get("ETag"))
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
	s.get(path, h).is(t, now.Body)
}

func TestIfNoneMatch_KnownVersionIs304(t *testing.T) {
	s, h := newWorkspace(t)
	editor := s.editor()
	for _, record := range []struct {
		path   string
		h      header
		change string
	}{
		{s.makeForm(h, allTypes).own(), h, `{"title":"Another"}`},
		{listPath + "/" + s.create(editor, `{"name":"Warm Homes"}`).ID.String(), editor, `{"name":"Another"}`},
	} {
		tag := s.get(record.path, record.h).Header.Get("ETag")
		for _, seen := range []string{tag, "W/" + tag, "*", `"x", ` + tag} {
			s.get(record.path, record.h.with("If-None-Match", seen)).wants(t, 304).is(t, "").
				header(t, "ETag", tag).header(t, "Cache-Control", "no-store")
			s.do("PATCH", record.path, record.h.with("If-None-Match", seen), record.change).wants(t, 412)
		}
		for name, wants := range map[string]map[string]int{
			"If-None-Match": {`"x"`: 200, "x": 400},
			"If-Match":      {`"x"`: 412, tag: 200, "W/" + tag: 200, "x": 400},
		} {
			for value, status := range wants {
				a := s.get(record.path, record.h.with(name, value)).wants(t, status)
				if (status == 200) != strings.Contains(a.Body, `"createdAt"`) {
					a.fail(t, "the record only with 200")
				}
			}
		}
		both := record.h.with("If-Match", tag).with("If-None-Match", `"x"`)
		s.do("PATCH", record.path, both, record.change).wants(t, 200)
		s.get(record.path, record.h.with("If-None-Match", tag)).wants(t, 200)
	}
}

func TestIfMatch_ConcurrentChangesHaveOneWinner(t *testing.T) {
	s := newOwn(t)
	editor := s.editor()
	h, f := s.form()
	programmePath := listPath + "/" + s.create(editor, `{"name":"Warm Homes"}`).ID.String()
	for table, c := range map[string]struct {
		path, member string
		h            header
	}{
		"resource.programmes": {programmePath, "name", editor},
		"resource.forms":      {f.own(), "title", h},
	} {
		t.Run(table, func(t *testing.T) {
			stale := c.h.with("If-Match", s.get(c.path, c.h).Header.Get("ETag"))
			// The row is locked until the first request waits for it; the others wait there too, or for a turn.
			s.Exec("begin")
			s.Exec("select 1 from " + table + " where {mine} for update")
			changed := make(chan []answer, 1)
			go func() {
				changed <- atOnce(3, func(i int) answer {
					return s.do("PATCH", c.path, stale, fmt.Sprintf(`{%q:"Change %d"}`, c.member, i))
				})
			}()
			s.awaitLocks(1)
			s.Exec("commit")
			if got := byStatus(<-changed); got[200] != 1 || got[412] != 2 {
				t.Errorf("%v", got)
			}
		})
	}
}

// awaitLocks waits until n sessions of this database wait for a lock.
func (s *service) awaitLocks(n int) {
	s.t.Helper()
	await.True(s.t, fmt.Sprintf("%d sessions wait for a lock", n), func() bool {
		s.Exec("select pg_stat_clear_snapshot()")
		return s.Count(`select count(distinct pid) from `+testkit.Locks+` where not granted`) >= n
	})
}

// Step 6: records of another workspace are as unknown as those that do not exist.
func TestProgrammes_RecordOfAnotherWorkspaceIs404(t *testing.T) {
	s, h := newEditor(t)
	elsewhere := s.editor()
	theirs := s.create(elsewhere, `{"name":"Theirs"}`).ID.String()
	imported := s.importCSV(elsewhere, "name\nx\n")
	unknown := s.get(listPath+"/"+uuid.NewString(), h).expect(t, 404, "NOT_FOUND", "")
	for _, id := range []string{theirs, uuid.NewString(), "x", "%2e%2e", strings.ToUpper(theirs), "{" + theirs + "}"} {
		for _, c := range []struct{ method, path, body string }{
			{"GET", listPath + "/" + id, ""},
			{"PATCH", listPath + "/" + id, `{"name":"Mine"}`},
			{"PATCH", listPath + "/" + id, `{}`},
			{"POST", listPath + "/" + id + "/transitions", `{"to":"active"}`},
			{"GET", listPath + "/imports/" + id, ""},
		} {
			s.do(c.method, c.path, h, c.body).expect(t, 404, "NOT_FOUND", "").is(t, unknown.Body)
		}
	}
	s.get(imported, h).expect(t, 404, "NOT_FOUND", "")
	s.get(listPath+"/"+theirs, elsewhere).has(t, `"name":"Theirs"`, `"draft"`)
	s.do("PATCH", listPath+"/x", h, `{"name":""}`).wants(t, 400)
}

// repeatAtOnce sends a request with a key ten times at once, and checks that one answer is given again to the others.
func repeatAtOnce(t *testing.T, status int, send func(int) answer) {
	t.Helper()
	answers := atOnce(10, send)
	repeated := 0
	for _, a := range answers {
		a.wants(t, status).is(t, answers[0].Body)
		if a.Header.Get("Idempotency-Replayed") == "true" {
			repeated++
		}
	}
	if repeated != len(answers)-1 {
		t.Errorf("%d of %d answers are marked as given again", repeated, len(answers))
	}
}

func TestIdempotency_SameKeyReturnsFirstAnswer(t *testing.T) {
	s, h := newEditor(t)
	keyed := h.with("Idempotency-Key", uuid.NewString())
	first := s.do("POST", listPath, keyed, `{"name":"Warm Homes"}`).wants(t, 201).
		header(t, "ETag", "*").header(t, "Location", "*").header(t, "Idempotency-Replayed", "")
	s.do("POST", listPath, keyed, `{"name":"Warm Homes"}`).repeats(t, first).
		header(t, "Location", first.Header.Get("Location")).header(t, "ETag", first.Header.Get("ETag"))
	s.wantsRows(1, "resource.programmes", "")
	for _, other := range []string{`{"name":"Cold Homes"}`, `{"name": "Warm Homes"}`, ``, `rubbish`} {
		s.do("POST", listPath, keyed, other).expect(t, 409, "CONFLICT", "")
	}
	s.wantsRows(1, "resource.programmes", "")
	another := h.with("Idempotency-Key", uuid.NewString())
	if a := s.do("POST", listPath, another, `{"name":"Warm Homes"}`).wants(t, 201); a.Body == first.Body {
		t.Errorf("another key: %s", a.Body)
	}

	// A repeated change that would fail now still gets the first answer.
	path := listPath + "/" + s.create(h, `{"name":"x"}`).ID.String()
	keyed = keyed.with("If-Match", s.get(path, h).Header.Get("ETag"))
	moved := s.do("POST", path+"/transitions", keyed, `{"to":"active"}`).wants(t, 200)
	moved.header(t, "Idempotency-Replayed", "")
	s.do("POST", path+"/transitions", keyed, `{"to":"active"}`).repeats(t, moved)
}

func TestIdempotency_KeyIsScopedToUserRouteAndWorkspace(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesWrite)
	elsewhere, colleague := s.Workspace(), s.User()
	s.Member(elsewhere, user, perm.ProgrammesWrite)
	s.Member(workspaceID, colleague, perm.ProgrammesWrite)
	key := uuid.NewString()
	headers := func(workspaceID, user uuid.UUID) header {
		return s.holding(workspaceID, user, perm.ProgrammesWrite).with("Idempotency-Key", key)
	}
	seen := map[string]bool{}
	for _, h := range []header{headers(workspaceID, user), headers(elsewhere, user), headers(workspaceID, colleague)} {
		a := s.do("POST", listPath, h, `{"name":"x"}`).wants(t, 201)
		if seen[a.Body] {
			t.Errorf("the answer to another: %s", a.Body)
		}
		seen[a.Body] = true
	}
	another := s.do("POST", listPath, headers(workspaceID, user), `{"name":"x"}`).wants(t, 201)
	if !seen[another.Body] {
		t.Errorf("another token of the same user: %s", another.Body)
	}
	path := listPath + "/" + decoded[one](t, another).ID.String()
	for _, a := range []answer{
		s.do("PATCH", path, headers(workspaceID, user), `{"name":"x"}`),
		s.do("POST", listPath+"/imports", headers(workspaceID, user), `{"name":"x"}`),
	} {
		if a.Status == 409 || a.Status == 201 {
			a.fail(t, "the answer of another route")
		}
	}
}

func TestIdempotency_StoresSuccessOnlyAfterGate(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesWrite)
	h := s.holding(workspaceID, user, perm.ProgrammesWrite).with("Idempotency-Key", "one")
	s.do("POST", listPath, h, `{"name":""}`).wants(t, 400)
	first := s.do("POST", listPath, h, `{"name":"x"}`)
	first.wants(t, 201)
	s.do("POST", listPath, h.with("Authorization", ""), `{"name":"x"}`).expect(t, 401, "UNAUTHENTICATED", "none")
	s.Member(workspaceID, user)
	s.do("POST", listPath, h, `{"name":"x"}`).expect(t, 403, "FORBIDDEN", "")
	s.Member(workspaceID, user, perm.ProgrammesWrite)
	s.Exec("update account.tenant_modules set enabled = false where {mine}")
	s.do("POST", listPath, h, `{"name":"x"}`).expect(t, 403, "MODULE_NOT_ENABLED", "")
	s.Exec("update account.tenant_modules set enabled = true where {mine}")

	s.Exec("update resource.idempotency_keys set created_at = now() - interval '23 hours 59 minutes' where {mine}")
	s.do("POST", listPath, h, `{"name":"x"}`).is(t, first.Body)
	s.Exec("update resource.idempotency_keys set created_at = now() - interval '24 hours' where {mine}")
	if a := s.do("POST", listPath, h, `{"name":"y"}`); a.Status != 201 || a.Body == first.Body {
		t.Errorf("after a day: %d %s", a.Status, a.Body)
	}
	s.do("POST", listPath, h, `{"name":"y"}`).wants(t, 201)
	s.wantsRows(2, "resource.programmes", "")
	for _, wrong := range []string{"", "two words", "é", strings.Repeat("k", 256)} {
		s.do("POST", listPath, h.with("Idempotency-Key", wrong), `{"name":"z"}`).wants(t, 400)
	}
}

func TestIdempotency_ConcurrentRequestsHaveOneEffect(t *testing.T) {
	s, h := newEditor(t)
	for n := range 4 {
		keyed := h.with("Idempotency-Key", uuid.NewString())
		repeatAtOnce(t, 201, func(int) answer { return s.insist("POST", listPath, keyed, `{"name":"x"}`) })
		s.wantsRows(n+1, "resource.programmes", "")
	}
}

// The route of a key is indexed, and the length of an index entry is limited.
func TestIdempotency_LongPath(t *testing.T) {
	s, h := newEditor(t)
	long := strings.Repeat(strings.ReplaceAll(uuid.NewString(), "-", ""), 2)
	for range 7 {
		long += strings.ReplaceAll(uuid.NewString()+uuid.NewString(), "-", "") + long
	}
	keyed := h.with("Idempotency-Key", strings.Repeat("k", 255))
	s.do("PATCH", listPath+"/"+long[:6000], keyed, `{"name":"x"}`).expect(t, 404, "NOT_FOUND", "")
	var id, other strings.Builder
	for n := range 200 {
		id.WriteRune(rune(0x1F300 + n*3))
		other.WriteRune(rune(0x1F300 + n*2))
	}
	first := s.do("PUT", listPath+"/external/"+url.PathEscape(id.String()), keyed, `{"name":"One"}`)
	again := s.do("PUT", listPath+"/external/"+url.PathEscape(id.String()), keyed, `{"name":"One"}`)
	third := s.do("PUT", listPath+"/external/"+url.PathEscape(other.String()), keyed, `{"name":"Two"}`)
	first.wants(t, 201).header(t, "Idempotency-Replayed", "")
	again.wants(t, 201).header(t, "Idempotency-Replayed", "true")
	third.wants(t, 201).header(t, "Idempotency-Replayed", "")
}
