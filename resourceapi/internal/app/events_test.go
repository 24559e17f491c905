package app

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

const eventsPath = "/v1/events"

type eventRecord struct {
	Sequence  int64
	Type      string
	Timestamp time.Time
	Data      struct {
		ID      string
		Changed []string
	}
}

// String is the event without what differs between runs.
func (e eventRecord) String() string {
	return strings.TrimSpace(e.Type + " " + strings.Join(e.Data.Changed, " "))
}

func (s *service) events(h header, query string) paged[eventRecord] {
	s.t.Helper()
	p := pageOf[eventRecord](s, eventsPath+query, h)
	for i, e := range p.Data {
		if i > 0 && e.Sequence <= p.Data[i-1].Sequence || e.Sequence < 1 || e.Timestamp.IsZero() || e.Data.ID == "" {
			s.t.Errorf("%s: %+v", query, e)
		}
	}
	return p
}

func texts(all []eventRecord) []string {
	out := []string{}
	for _, e := range all {
		out = append(out, e.String())
	}
	return out
}

func TestEvents_FollowChangesOfProgrammes(t *testing.T) {
	s := newOwn(t)
	h := s.editor()
	var from int64
	for _, e := range s.events(h, "").Data { // of the members that the test has made
		from = e.Sequence
	}
	made := s.create(h, `{"name":"Spring pantry"}`)
	path := listPath + "/" + made.ID.String()
	s.do("PATCH", path, h, `{"name":"Summer pantry","startsOn":"2026-06-01"}`).wants(t, 200)
	s.do("PATCH", path, h, `{"name":"Summer pantry"}`).wants(t, 200) // changes nothing
	s.do("POST", path+"/transitions", h, `{"to":"active"}`).wants(t, 200)
	draft := s.create(h, `{"name":"Draft"}`)
	s.do("DELETE", listPath+"/"+draft.ID.String(), h, "").wants(t, http.StatusNoContent)
	after := fmt.Sprint("?after=", from)
	got := s.events(h, after)
	if want := []string{
		"programme.created", "programme.updated name startsOn", "programme.updated status", "programme.created",
		"programme.deleted",
	}; !slices.Equal(texts(got.Data), want) || got.Meta.NextCursor != "" || got.Data[0].Data.ID != made.ID.String() {
		t.Fatalf("%q, %+v", texts(got.Data), got)
	}
	if again := s.events(h, after); !reflect.DeepEqual(again.Data, got.Data) {
		t.Errorf("the events changed: %+v", again.Data)
	}
	var paged []string
	for query := after + "&limit=2"; query != ""; {
		p := s.events(h, query)
		paged = append(paged, texts(p.Data)...)
		if query = ""; p.Meta.NextCursor != "" {
			query = "?limit=2&cursor=" + p.Meta.NextCursor
		}
	}
	if !slices.Equal(paged, texts(got.Data)) {
		t.Errorf("in pages: %q", paged)
	}
	s.Exec(`update account.events set created_at = now() - interval '31 days'
		where {mine} and sequence = $1`, got.Data[0].Sequence)
	if rest := s.events(h, after); len(rest.Data) != 4 {
		t.Errorf("an event of last month: %q", texts(rest.Data))
	}
	s.Wants(1, "select account.delete_events(now(), 500)")
	s.wantsRows(0, "account.events", `created_at < now() - interval '30 days'`)
}

func TestEvents_RefusesInvalidParameters(t *testing.T) {
	s, h := newEditor(t)
	other := s.editor()
	s.create(other, `{"name":"A"}`)
	s.create(other, `{"name":"B"}`)
	foreign := s.events(other, "?limit=1").Meta.NextCursor
	if foreign == "" {
		t.Fatal("no cursor")
	}
	for _, query := range []string{
		"after=", "after=-1", "after=x", "after=1.0", "after=%2B1", "after=9223372036854775808", "after=1&after=2",
		"limit=0", "limit=x", "cursor=", "cursor=x", "cursor=" + foreign, "before=1", "fields=name",
	} {
		s.get(eventsPath+"?"+query, h).refuses(t, http.StatusBadRequest, "VALIDATION_ERROR")
	}
	if p := s.events(h, "?after=9223372036854775807"); len(p.Data) != 0 {
		t.Errorf("%+v", p)
	}
	s.get(eventsPath, header{}).refuses(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	stranger := header{"Authorization": h["Authorization"], "X-Tenant-Id": uuid.NewString()}
	s.get(eventsPath, stranger).refuses(t, http.StatusForbidden, "FORBIDDEN")
}

func TestEvents_LeaveOutWhatCallerMayNotRead(t *testing.T) {
	s, h := newEditor(t)
	s.create(h, `{"name":"A"}`)
	for permission, want := range map[perm.Permission][]string{
		perm.ProgrammesRead:     {"programme.created"},
		perm.AccountReadMembers: {"member.added"},
		perm.EngageReadForms:    {},
	} {
		_, user := s.member(permission)
		s.Member(h.workspace(), user, permission)
		kinds := texts(s.events(s.holding(h.workspace(), user, permission), "").Data)
		slices.Sort(kinds)
		if got := slices.Compact(kinds); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", permission, got, want)
		}
	}
}
