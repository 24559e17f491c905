package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func external(id string) string { return listPath + "/external/" + id }

func TestExternalID_IsUniqueInWorkspace(t *testing.T) {
	s, h := newEditor(t)
	elsewhere := s.editor()
	p := s.create(h, `{"name":"Warm Homes","externalId":"crm/7"}`)
	s.create(elsewhere, `{"name":"Warm Homes","externalId":"crm/7"}`)
	other := listPath + "/" + s.create(h, `{"name":"Other"}`).ID.String()
	s.do("POST", listPath, h, `{"name":"Again","externalId":"crm/7"}`).expect(t, 409, "CONFLICT", "")
	s.do("PATCH", other, h, `{"externalId":"crm/7"}`).expect(t, 409, "CONFLICT", "")
	for _, wrong := range []string{`""`, `7`, `"a\u0000"`, `"` + strings.Repeat("x", 201) + `"`, `"."`, `".."`} {
		s.do("POST", listPath, h, `{"name":"x","externalId":`+wrong+`}`).expect(t, 400, "VALIDATION_ERROR", "")
	}
	s.get(listPath+"?externalId=crm%2F7", h).has(t, p.ID.String(), `"count":1`, `"externalId":"crm/7"`)
	s.get(listPath+"?externalId=none&updatedSince=2020-01-01T00:00:00Z", h).has(t, `"count":0`)
	s.get(listPath+"?externalId=", h).expect(t, 400, "VALIDATION_ERROR", "")
	s.do("PATCH", listPath+"/"+p.ID.String(), h, `{"externalId":null}`).wants(t, 200).lacks(t, "externalId")
	s.do("PATCH", other, h, `{"externalId":"crm/7"}`).wants(t, 200)
}

// No URL has a segment . or .. (RFC 3986, section 5.2.4), so a programme with it could not be reached by PUT.
func TestExternalID_DotsAreRefusedAtEveryEntrance(t *testing.T) {
	s, h := newEditor(t)
	p := s.create(h, `{"name":"Warm Homes","externalId":"..."}`)
	for _, dots := range []string{".", ".."} {
		quoted := `{"name":"x","externalId":"` + dots + `"}`
		s.do("POST", listPath, h, quoted).expect(t, 400, "VALIDATION_ERROR", "")
		s.do("PATCH", listPath+"/"+p.ID.String(), h, `{"externalId":"`+dots+`"}`).expect(t, 400, "VALIDATION_ERROR", "")
		encoded := strings.ReplaceAll(dots, ".", "%2E")
		s.do("PUT", external(encoded), h, `{"name":"x"}`).expect(t, 400, "VALIDATION_ERROR", "")
		s.get(listPath+"?externalId="+dots, h).expect(t, 400, "VALIDATION_ERROR", "")
		batch := s.do("POST", listPath+"/batch", h, `{"items":[`+quoted+`,{"name":"y"}]}`)
		batch.wants(t, 200, `"status":400`, `"status":201`)
		file := s.importCSV(h, "name,externalId\nx,"+dots+"\n")
		s.process(h, file)
		if state := s.importState(h, file); state.Status != "rejected" || len(state.Errors) != 1 ||
			state.Errors[0].Field != "externalId" {
			t.Errorf("%+v", state)
		}
	}
	s.wantsRows(0, "resource.programmes", "external_id in ('.', '..')")
}

func TestExternalID_PutCreatesThenChanges(t *testing.T) {
	s, h := newEditor(t)
	put := func(h header, body string) answer { t.Helper(); return s.do("PUT", external("crm%2F7"), h, body) }
	first := put(h, `{"name":"Warm Homes","summary":"Advice"}`)
	path := listPath + "/" + decoded[one](t, first).ID.String()
	first.wants(t, 201, `"externalId":"crm/7"`).header(t, "Location", base+path).header(t, "ETag", `"1"`)
	again := put(h, `{"name":"Warmer Homes","status":"active","externalId":"crm/7"}`).
		wants(t, 200, path[len(listPath)+1:], `"summary":"Advice","status":"active"`).header(t, "ETag", `"2"`)
	s.get(path, h).is(t, again.Body)
	put(h, `{"name":"Warmer Homes"}`).is(t, again.Body) // changes nothing
	put(h, `{"name":"x","status":"draft"}`).expect(t, 409, "CONFLICT", "")
	put(h, `{"name":"x","externalId":"8"}`).expect(t, 400, "VALIDATION_ERROR", "")
	put(h, `{"summary":"x"}`).expect(t, 400, "VALIDATION_ERROR", "")
	stale := h.with("If-Match", `"1"`)
	put(stale, `{"name":"x"}`).expect(t, 412, "PRECONDITION_FAILED", "")
	s.do("PUT", external("new"), stale, `{"name":"x"}`).expect(t, 412, "PRECONDITION_FAILED", "")
	keyed := h.with("Idempotency-Key", uuid.NewString())
	created := s.do("PUT", external("8"), keyed, `{"name":"x"}`).wants(t, 201)
	s.do("PUT", external("8"), keyed, `{"name":"x"}`).repeats(t, created)
}

type batchResult struct {
	Data []struct {
		Status int
		ID     *uuid.UUID
		Error  *struct {
			Code, Message string
			Fields        map[string]string
		}
	}
}

func TestBatch_ResultOfEachItem(t *testing.T) {
	s, h := newEditor(t)
	known := s.create(h, `{"name":"Known","externalId":"known","summary":"kept"}`)
	keyed := h.with("Idempotency-Key", uuid.NewString())
	body := `{"items":[{"name":"One"},{"name":""},{"name":"New name","externalId":"known"},7,
		{"name":"Two","externalId":"two"},{"name":"Two again","externalId":"two","status":"active"},
		{"name":"x","externalId":"known","status":"completed"},{"name":"x","id":"7"},
		{"name":"Last","status":"archived"}]}`
	a := s.do("POST", listPath+"/batch", keyed, body).wants(t, 200)
	got := decoded[batchResult](t, a)
	want := []int{201, 400, 200, 400, 201, 200, 409, 400, 201}
	if len(got.Data) != len(want) {
		t.Fatal(a.Body)
	}
	for i, one := range got.Data {
		if one.Status != want[i] || (one.ID != nil) != (want[i] < 300) || (one.Error == nil) != (want[i] < 300) {
			t.Errorf("item %d: %+v, want %d", i, one, want[i])
		}
	}
	if got.Data[1].Error.Code != "VALIDATION_ERROR" || got.Data[1].Error.Fields["name"] == "" ||
		got.Data[6].Error.Code != "CONFLICT" || *got.Data[2].ID != known.ID || *got.Data[4].ID != *got.Data[5].ID {
		t.Errorf("%s", a.Body)
	}
	s.get(listPath+"/"+known.ID.String(), h).has(t, `"name":"New name","summary":"kept"`).header(t, "ETag", `"2"`)
	s.get(listPath+"/"+got.Data[4].ID.String(), h).has(t, `"name":"Two again","summary":"","status":"active"`)
	s.wantsRows(4, "resource.programmes", "")
	s.do("POST", listPath+"/batch", keyed, body).repeats(t, a)
	s.Wants(4, "select count(distinct updated_at) from resource.programmes where {mine}")
}

func TestBatch_Bounds(t *testing.T) {
	s, h := newEditor(t)
	items := func(n int) string {
		return `{"items":[` + strings.TrimSuffix(strings.Repeat(`{"name":"x"},`, n), ",") + `]}`
	}
	for _, wrong := range []string{`{}`, `{"items":[]}`, `{"items":null}`, `{"items":{}}`, `{"items":[{}],"x":1}`,
		items(501), `[]`, ``} {
		s.do("POST", listPath+"/batch", h, wrong).expect(t, 400, "VALIDATION_ERROR", "")
	}
	s.do("POST", listPath+"/batch", h, items(500)).wants(t, 200)
	s.wantsRows(500, "resource.programmes", "")
	s.do("POST", listPath+"/batch", h, `{"items":[{"name":""}]}`).wants(t, 200)
	s.wantsRows(500, "resource.programmes", "")
}

func TestImport_KnownExternalIDUpdatesItsProgramme(t *testing.T) {
	s, h := newEditor(t)
	known := s.create(h, `{"name":"Known","externalId":"known","summary":"kept","status":"active"}`)
	process := func(file string) answer {
		t.Helper()
		path := s.importCSV(h, file)
		s.process(h, path)
		return s.get(path, h)
	}
	process("name,externalId,status\nA,new,draft\nB,known,completed\nC,,\n").has(t, `"status":"processed","imported":3`)
	s.get(listPath+"/"+known.ID.String(), h).has(t, `"name":"B","summary":"kept","status":"completed"`)
	s.wantsRows(3, "resource.programmes", "")
	// One row that cannot be written rejects all (P5).
	process("name,externalId,status\nA2,new,active\n\nB2,known,draft\n").
		has(t, `"status":"rejected","imported":0,"errors":[{"row":4,"field":"status"`)
	s.wantsRows(0, "resource.programmes", "name in ('A2', 'B2')")
}

// A write that gives an external id waits for another one that does, so that it sees the programme that has it.
func TestExternalID_WritesWaitForEachOther(t *testing.T) {
	s := newOwn(t)
	h := s.editor()
	for _, c := range []struct {
		method, path, body string
		status             int
		says, name         string // name is the programme's own afterwards
	}{
		{"PUT", external("7"), `{"name":"Second"}`, 200, `"name":"Second"`, "Second"},
		{"POST", listPath, `{"name":"Second","externalId":"7"}`, 409, "CONFLICT", "First"},
		{"POST", listPath + "/batch", `{"items":[{"name":"Second","externalId":"7"}]}`, 200, `"status":200`, "Second"},
	} {
		s.Exec("begin")
		s.Exec("select pg_advisory_xact_lock(hashtextextended('external ids of ' || $1, 0))", h.workspace().String())
		s.Exec("delete from resource.programmes where {mine}")
		s.Exec(`insert into resource.programmes (id, tenant_id, name, status, external_id)
			values (gen_random_uuid(), $1, 'First', 'draft', '7')`, h.workspace())
		changed := make(chan answer, 1)
		go func() { changed <- s.do(c.method, c.path, h, c.body) }()
		s.awaitLocks(1)
		s.Exec("commit")
		(<-changed).wants(t, c.status, c.says)
		s.wantsRows(1, "resource.programmes", "")
		s.wantsRows(1, "resource.programmes", "name = $1", c.name)
	}
}

func TestTransitions_ReturnResultForEachItem(t *testing.T) {
	s, h := newEditor(t)
	elsewhere := s.editor()
	draft, active := s.create(h, `{"name":"a"}`).ID, s.create(h, `{"name":"b","status":"active"}`).ID
	archived, foreign := s.create(h, `{"name":"c","status":"archived"}`).ID, s.create(elsewhere, `{"name":"d"}`).ID
	item := func(id uuid.UUID, to string) string { return fmt.Sprintf(`{"id":"%s","to":"%s"}`, id, to) }
	items := []struct {
		item   string
		status int
		says   string
	}{
		{item(draft, "active"), 200, draft.String()},
		{item(draft, "completed"), 200, draft.String()}, // after the one before
		{item(active, "archived"), 409, "CONFLICT"},
		{item(archived, "active"), 409, "CONFLICT"},
		{item(foreign, "active"), 404, "NOT_FOUND"},
		{item(uuid.New(), "active"), 404, "NOT_FOUND"},
		{`{"id":"x","to":"active"}`, 404, "NOT_FOUND"},
		{`{"id":7,"to":"active"}`, 400, `"id"`},
		{item(draft, "Archived"), 400, `"to"`},
		{`{"id":"` + draft.String() + `","to":"archived","x":1}`, 400, `"x"`},
		{`[]`, 400, "VALIDATION_ERROR"},
		{item(active, "completed"), 200, active.String()},
	}
	var all []string
	for _, one := range items {
		all = append(all, one.item)
	}
	body := `{"items":[` + strings.Join(all, ",") + `]}`
	keyed := h.with("Idempotency-Key", uuid.NewString())
	a := s.do("POST", listPath+"/transitions", keyed, body).wants(t, 200)
	results := decoded[struct{ Data []json.RawMessage }](t, a).Data
	if len(results) != len(items) {
		t.Fatal(a.Body)
	}
	for i, one := range items {
		var got struct{ Status int }
		if err := json.Unmarshal(results[i], &got); err != nil || got.Status != one.status ||
			!strings.Contains(string(results[i]), one.says) {
			t.Errorf("%s: %s, want %d %s", one.item, results[i], one.status, one.says)
		}
	}
	s.do("POST", listPath+"/transitions", keyed, body).repeats(t, a)
	for id, want := range map[uuid.UUID]string{
		draft: "completed", active: "completed", archived: "archived", foreign: "draft",
	} {
		s.wantsRows(1, "resource.programmes", "id = $1 and status = $2", id, want)
	}
	// One version and one event for each programme that changed, each with a time of its own.
	s.Wants(2, `select count(distinct updated_at) from resource.programmes
		where {mine} and version = 2 and updated_at > created_at`)
	s.wantsRows(2, "account.events", "type = 'programme.updated'")
	for _, wrong := range []string{`{}`, `{"items":[]}`, `{"items":{}}`, `{"items":[],"x":1}`,
		`{"items":[` + strings.Repeat(`{},`, 500) + `{}]}`} {
		s.do("POST", listPath+"/transitions", h, wrong).expect(t, 400, "VALIDATION_ERROR", "")
	}
}
