package app

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

func external(id string) string { return listPath + "/external/" + id }

func TestExternalID_IsUniqueInWorkspace(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	_, elsewhere := s.editor()
	p := s.create(h, `{"name":"Warm Homes","externalId":"crm/7"}`)
	s.create(elsewhere, `{"name":"Warm Homes","externalId":"crm/7"}`)
	other := s.create(h, `{"name":"Other"}`)
	s.do("POST", listPath, h, `{"name":"Again","externalId":"crm/7"}`).expect(t, 409, "CONFLICT", "")
	s.do("PATCH", listPath+"/"+other.ID.String(), h, `{"externalId":"crm/7"}`).expect(t, 409, "CONFLICT", "")
	for _, wrong := range []string{`""`, `7`, `"a\u0000"`, `"` + strings.Repeat("x", 201) + `"`, `"."`, `".."`} {
		s.do("POST", listPath, h, `{"name":"x","externalId":`+wrong+`}`).expect(t, 400, "VALIDATION_ERROR", "")
	}
	list := s.get(listPath+"?externalId=crm%2F7", h)
	if !strings.Contains(list.Body, p.ID.String()) || !strings.Contains(list.Body, `"count":1`) ||
		!strings.Contains(list.Body, `"externalId":"crm/7"`) {
		t.Errorf("%d %s", list.Status, list.Body)
	}
	if a := s.get(listPath+"?externalId=none&updatedSince=2020-01-01T00:00:00Z", h); !strings.Contains(
		a.Body, `"count":0`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	s.get(listPath+"?externalId=", h).expect(t, 400, "VALIDATION_ERROR", "")
	s.do("PATCH", listPath+"/"+p.ID.String(), h, `{"externalId":null}`).wants(t, 200).lacks(t, "externalId")
	s.do("PATCH", listPath+"/"+other.ID.String(), h, `{"externalId":"crm/7"}`).wants(t, 200)
}

// No URL has a segment . or .. (RFC 3986, section 5.2.4), so a programme with it could not be reached by PUT.
func TestExternalID_DotsAreRefusedAtEveryEntrance(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
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
	s := newService(t)
	_, h := s.editor()
	first := s.do("PUT", external("crm%2F7"), h, `{"name":"Warm Homes","summary":"Advice"}`)
	var p one
	first.decode(t, &p)
	first.wants(t, 201, `"externalId":"crm/7"`).
		header(t, "Location", base+listPath+"/"+p.ID.String()).
		header(t, "ETag", `"1"`)
	again := s.do("PUT", external("crm%2F7"), h, `{"name":"Warmer Homes","status":"active","externalId":"crm/7"}`)
	again.wants(t, 200, p.ID.String(), `"summary":"Advice","status":"active"`).header(t, "ETag", `"2"`)
	if read := s.get(listPath+"/"+p.ID.String(), h); read.Body != again.Body {
		t.Errorf("%s, stored as %s", again.Body, read.Body)
	}
	if same := s.do("PUT", external("crm%2F7"), h, `{"name":"Warmer Homes"}`); same.Body != again.Body {
		t.Errorf("a change of nothing: %s", same.Body)
	}
	s.do("PUT", external("crm%2F7"), h, `{"name":"x","status":"draft"}`).expect(t, 409, "CONFLICT", "")
	s.do("PUT", external("crm%2F7"), h, `{"name":"x","externalId":"8"}`).expect(t, 400, "VALIDATION_ERROR", "")
	s.do("PUT", external("crm%2F7"), h, `{"summary":"x"}`).expect(t, 400, "VALIDATION_ERROR", "")
	stale := h.with("If-Match", `"1"`)
	s.do("PUT", external("crm%2F7"), stale, `{"name":"x"}`).expect(t, 412, "PRECONDITION_FAILED", "")
	s.do("PUT", external("new"), stale, `{"name":"x"}`).expect(t, 412, "PRECONDITION_FAILED", "")
	keyed := h.with("Idempotency-Key", uuid.NewString())
	s.do("PUT", external("8"), keyed, `{"name":"x"}`).wants(t, 201)
	if a := s.do("PUT", external("8"), keyed, `{"name":"x"}`); a.Status != 201 || !a.replayed() {
		t.Errorf("%d", a.Status)
	}
}

func TestExternalID_ConcurrentPutsCreateOne(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	answers := make([]answer, 12)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() {
			switch i % 3 {
			case 0:
				answers[i] = s.do("PUT", external("7"), h, fmt.Sprintf(`{"name":"Put %d"}`, i))
			case 1:
				body := fmt.Sprintf(`{"items":[{"name":"a %d"},{"name":"Batch %d","externalId":"7"}]}`, i, i)
				answers[i] = s.do("POST", listPath+"/batch", h, body)
			default:
				answers[i] = s.do("POST", listPath, h, fmt.Sprintf(`{"name":"Post %d","externalId":"7"}`, i))
			}
		})
	}
	group.Wait()
	created := 0
	for i, a := range answers {
		if a.Status == 503 { // a write of one workspace waits for others
			continue
		}
		if a.Status != 200 && a.Status != 201 && a.Status != 409 {
			t.Errorf("%d: %d %s", i, a.Status, a.Body)
		}
		if i%3 != 1 && a.Status == 201 || i%3 == 1 && strings.Count(a.Body, `"status":201`) == 2 {
			created++
		}
	}
	if n := s.rows("resource.programmes", "external_id = '7'"); n != 1 || created != 1 {
		t.Errorf("%d programmes, %d answers say that they created one", n, created)
	}
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
	s := newService(t)
	_, h := s.editor()
	known := s.create(h, `{"name":"Known","externalId":"known","summary":"kept"}`)
	keyed := h.with("Idempotency-Key", uuid.NewString())
	body := `{"items":[{"name":"One"},{"name":""},{"name":"New name","externalId":"known"},7,
		{"name":"Two","externalId":"two"},{"name":"Two again","externalId":"two","status":"active"},
		{"name":"x","externalId":"known","status":"completed"},{"name":"x","id":"7"},
		{"name":"Last","status":"archived"}]}`
	a := s.do("POST", listPath+"/batch", keyed, body)
	var got batchResult
	a.decode(t, &got)
	want := []int{201, 400, 200, 400, 201, 200, 409, 400, 201}
	if a.Status != 200 || len(got.Data) != len(want) {
		t.Fatalf("%d %s", a.Status, a.Body)
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
	read := s.get(listPath+"/"+known.ID.String(), h)
	two := s.get(listPath+"/"+got.Data[4].ID.String(), h)
	if !strings.Contains(read.Body, `"name":"New name","summary":"kept"`) || read.Header.Get("ETag") != `"2"` ||
		!strings.Contains(two.Body, `"name":"Two again","summary":"","status":"active"`) {
		t.Errorf("%s %s", read.Body, two.Body)
	}
	if s.programmes() != 4 {
		t.Errorf("%d programmes", s.programmes())
	}
	if again := s.do("POST", listPath+"/batch", keyed, body); again.Body != a.Body || !again.replayed() {
		t.Errorf("%s", again.Body)
	}
	if distinct := s.Count("select count(distinct updated_at) from resource.programmes where {mine}"); distinct != 4 {
		t.Errorf("%d distinct times", distinct)
	}
}

func TestBatch_Bounds(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	items := func(n int) string {
		return `{"items":[` + strings.TrimSuffix(strings.Repeat(`{"name":"x"},`, n), ",") + `]}`
	}
	for _, wrong := range []string{`{}`, `{"items":[]}`, `{"items":null}`, `{"items":{}}`, `{"items":[{}],"x":1}`,
		items(501), `[]`, ``} {
		s.do("POST", listPath+"/batch", h, wrong).expect(t, 400, "VALIDATION_ERROR", "")
	}
	if a := s.do("POST", listPath+"/batch", h, items(500)); a.Status != 200 || s.programmes() != 500 {
		t.Errorf("%d, %d programmes", a.Status, s.programmes())
	}
	if a := s.do("POST", listPath+"/batch", h, `{"items":[{"name":""}]}`); a.Status != 200 || s.programmes() != 500 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestImport_KnownExternalIDUpdatesItsProgramme(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	known := s.create(h, `{"name":"Known","externalId":"known","summary":"kept","status":"active"}`)
	process := func(file string) string {
		t.Helper()
		path := s.importCSV(h, file)
		s.process(h, path)
		return s.get(path, h).Body
	}
	if got := process("name,externalId,status\nA,new,draft\nB,known,completed\nC,,\n"); !strings.Contains(
		got, `"status":"processed","imported":3`) {
		t.Fatal(got)
	}
	read := s.get(listPath+"/"+known.ID.String(), h)
	if !strings.Contains(read.Body, `"name":"B","summary":"kept","status":"completed"`) || s.programmes() != 3 {
		t.Errorf("%s, %d programmes", read.Body, s.programmes())
	}
	// One row that cannot be written rejects all (P5).
	got := process("name,externalId,status\nA2,new,active\n\nB2,known,draft\n")
	if !strings.Contains(got, `"status":"rejected","imported":0,"errors":[{"row":4,"field":"status"`) ||
		s.rows("resource.programmes", "name in ('A2', 'B2')") != 0 {
		t.Errorf("%s", got)
	}
}

// A write that gives an external id waits for another one that does, so that it sees the programme that has it.
func TestExternalID_WritesWaitForEachOther(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, h := s.editor()
	other, err := pgx.Connect(t.Context(), s.Database.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.Background()) }()
	for _, statement := range []string{
		"begin",
		"select pg_advisory_xact_lock(hashtextextended('external ids of ' || '" + workspaceID.String() + "', 0))",
		"insert into resource.programmes (id, tenant_id, name, status, external_id) " +
			"values (gen_random_uuid(), '" + workspaceID.String() + "', 'First', 'draft', '7')",
	} {
		if _, err := other.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	changed := make(chan answer, 1)
	go func() { changed <- s.do("PUT", external("7"), h, `{"name":"Second"}`) }()
	s.awaitLocks(1)
	if _, err := other.Exec(t.Context(), "commit"); err != nil {
		t.Fatal(err)
	}
	if a := <-changed; a.Status != 200 || !strings.Contains(a.Body, `"name":"Second"`) || s.programmes() != 1 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
