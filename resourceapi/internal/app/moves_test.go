package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestTransitions_ReturnResultForEachItem(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	_, elsewhere := s.editor()
	draft, active := s.create(h, `{"name":"a"}`), s.create(h, `{"name":"b","status":"active"}`)
	archived, foreign := s.create(h, `{"name":"c","status":"archived"}`), s.create(elsewhere, `{"name":"d"}`)
	item := func(id uuid.UUID, to string) string { return fmt.Sprintf(`{"id":"%s","to":"%s"}`, id, to) }
	items := []struct {
		item   string
		status int
		says   string
	}{
		{item(draft.ID, "active"), 200, draft.ID.String()},
		{item(draft.ID, "completed"), 200, draft.ID.String()}, // after the one before
		{item(active.ID, "archived"), 409, "CONFLICT"},
		{item(archived.ID, "active"), 409, "CONFLICT"},
		{item(foreign.ID, "active"), 404, "NOT_FOUND"},
		{item(uuid.New(), "active"), 404, "NOT_FOUND"},
		{`{"id":"x","to":"active"}`, 404, "NOT_FOUND"},
		{`{"id":7,"to":"active"}`, 400, `"id"`},
		{item(draft.ID, "Archived"), 400, `"to"`},
		{`{"id":"` + draft.ID.String() + `","to":"archived","x":1}`, 400, `"x"`},
		{`[]`, 400, "VALIDATION_ERROR"},
		{item(active.ID, "completed"), 200, active.ID.String()},
	}
	var all []string
	for _, one := range items {
		all = append(all, one.item)
	}
	body := `{"items":[` + strings.Join(all, ",") + `]}`
	keyed := h.with("Idempotency-Key", uuid.NewString())
	a := s.do("POST", listPath+"/transitions", keyed, body)
	var results struct {
		Data []json.RawMessage
	}
	if a.decode(t, &results); a.Status != 200 || len(results.Data) != len(items) {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	for i, one := range items {
		var got struct{ Status int }
		if err := json.Unmarshal(results.Data[i], &got); err != nil || got.Status != one.status ||
			!strings.Contains(string(results.Data[i]), one.says) {
			t.Errorf("%s: %s, want %d %s", one.item, results.Data[i], one.status, one.says)
		}
	}
	if again := s.do("POST", listPath+"/transitions", keyed, body); again.Body != a.Body || !again.replayed() {
		t.Errorf("the same key: %s", again.Body)
	}
	for id, want := range map[uuid.UUID]string{
		draft.ID:    "completed",
		active.ID:   "completed",
		archived.ID: "archived",
		foreign.ID:  "draft",
	} {
		if n := s.Count("select count(*) from resource.programmes where id = $1 and status = $2", id, want); n != 1 {
			t.Errorf("%s is not %s", id, want)
		}
	}
	// One version and one event for each programme that changed, each with a time of its own.
	const changed = `select count(distinct updated_at) from resource.programmes
		where {mine} and version = 2 and updated_at > created_at`
	if n := s.Count(changed); n != 2 {
		t.Errorf("%d programmes have another version", n)
	}
	s.wantsRows(2, "account.events", "type = 'programme.updated'")
	for _, wrong := range []string{`{}`, `{"items":[]}`, `{"items":{}}`, `{"items":[],"x":1}`,
		`{"items":[` + strings.Repeat(`{},`, 500) + `{}]}`} {
		s.do("POST", listPath+"/transitions", h, wrong).expect(t, 400, "VALIDATION_ERROR", "")
	}
}
