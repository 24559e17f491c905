package app

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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

type eventPage struct {
	Data []eventRecord
	Meta struct {
		Count      int
		NextCursor string
	}
}

func (s *service) events(h header, query string) eventPage {
	s.t.Helper()
	a := s.get(eventsPath+query, h)
	if a.Status != http.StatusOK {
		s.t.Fatalf("%s: %d %s", query, a.Status, a.Body)
	}
	var p eventPage
	a.decode(s.t, &p)
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

func wantsRefused(t *testing.T, a answer, status int, code string) {
	t.Helper()
	if a.Status != status || a.code(t) != code {
		a.fail(t, strconv.Itoa(status)+" "+code)
	}
}

func TestEvents_FollowChangesOfProgrammes(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	_, h := s.editor()
	before := s.events(h, "").Data // of the members that the test has made
	var from int64
	if len(before) > 0 {
		from = before[len(before)-1].Sequence
	}
	made := s.create(h, `{"name":"Spring pantry"}`)
	path := listPath + "/" + made.ID.String()
	for _, change := range []struct{ method, path, body string }{
		{"PATCH", path, `{"name":"Summer pantry","startsOn":"2026-06-01"}`},
		{"PATCH", path, `{"name":"Summer pantry"}`}, // changes nothing
		{"POST", path + "/transitions", `{"to":"active"}`},
	} {
		s.do(change.method, change.path, h, change.body).wants(t, http.StatusOK)
	}
	draft := s.create(h, `{"name":"Draft"}`)
	s.do("DELETE", listPath+"/"+draft.ID.String(), h, "").wants(t, http.StatusNoContent)
	after := fmt.Sprint("?after=", from)
	got := s.events(h, after)
	if want := []string{
		"programme.created", "programme.updated name startsOn", "programme.updated status", "programme.created",
		"programme.deleted",
	}; !slices.Equal(texts(got.Data), want) || got.Meta.Count != len(want) || got.Meta.NextCursor != "" {
		t.Errorf("%q, %+v", texts(got.Data), got.Meta)
	}
	if got.Data[0].Data.ID != made.ID.String() {
		t.Errorf("%+v", got.Data[0])
	}
	if again := s.events(h, after); !slices.Equal(texts(again.Data), texts(got.Data)) ||
		again.Data[4].Sequence != got.Data[4].Sequence {
		t.Error("the sequences changed")
	}

	var paged []string
	for query := after + "&limit=2"; ; {
		p := s.events(h, query)
		paged = append(paged, texts(p.Data)...)
		if p.Meta.NextCursor == "" {
			break
		}
		query = "?limit=2&cursor=" + p.Meta.NextCursor
	}
	if !slices.Equal(paged, texts(got.Data)) {
		t.Errorf("in pages: %q", paged)
	}
	const ages = `update account.events set created_at = now() - interval '31 days'
		where {mine} and sequence = $1`
	s.Exec(ages, got.Data[0].Sequence)
	if rest := s.events(h, after); len(rest.Data) != 4 {
		t.Errorf("an event of last month: %q", texts(rest.Data))
	}
	if n := s.Count("select account.delete_events(now(), 500)"); n != 1 {
		t.Errorf("%d events of last month were deleted", n)
	}
	s.wantsRows(0, "account.events", `created_at < now() - interval '30 days'`)
}

func TestEvents_RefusesInvalidParameters(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.editor()
	elsewhere, other := s.editor()
	s.create(other, `{"name":"A"}`)
	s.create(other, `{"name":"B"}`)
	foreign := s.events(other, "?limit=1").Meta.NextCursor
	if foreign == "" || workspaceID == elsewhere {
		t.Fatal("no cursor")
	}
	for _, query := range []string{
		"after=", "after=-1", "after=x", "after=1.0", "after=%2B1", "after=9223372036854775808", "after=1&after=2",
		"limit=0", "limit=x", "cursor=", "cursor=x", "cursor=" + foreign, "before=1", "fields=name",
	} {
		wantsRefused(t, s.get(eventsPath+"?"+query, h), http.StatusBadRequest, "VALIDATION_ERROR")
	}
	if p := s.events(h, "?after=9223372036854775807"); len(p.Data) != 0 {
		t.Errorf("%+v", p)
	}
	wantsRefused(t, s.get(eventsPath, header{}), http.StatusUnauthorized, "UNAUTHENTICATED")
	stranger := header{"Authorization": h["Authorization"], "X-Tenant-Id": uuid.NewString()}
	wantsRefused(t, s.get(eventsPath, stranger), http.StatusForbidden, "FORBIDDEN")
}

func TestEvents_LeaveOutWhatCallerMayNotRead(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.editor()
	s.create(h, `{"name":"A"}`)
	for permission, want := range map[perm.Permission]string{
		perm.ProgrammesRead:     "programme.created",
		perm.AccountReadMembers: "member.added",
		perm.EngageReadForms:    "",
	} {
		_, user := s.member(permission)
		s.Member(workspaceID, user, permission)
		token := s.PAT(workspaceID, user, permission).Reveal()
		got := s.events(header{"Authorization": "Bearer " + token, "X-Tenant-Id": workspaceID.String()}, "")
		kinds := map[string]bool{}
		for _, e := range got.Data {
			kinds[e.Type] = true
		}
		if want == "" && len(kinds) != 0 || want != "" && (len(kinds) != 1 || !kinds[want]) {
			t.Errorf("%s: %v", permission, kinds)
		}
	}
}

// TestEvents_LateCommitGetsLaterSequence commits a change after a later one was read.
func TestEvents_LateCommitGetsLaterSequence(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.editor()
	insert := `insert into resource.programmes (id, tenant_id, name, status) values ($1, $2, 'Late', 'draft')`
	connection, err := pgx.Connect(t.Context(), s.Database.Owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close(context.WithoutCancel(t.Context())) })
	slow, err := connection.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := uuid.New()
	if _, err := slow.Exec(t.Context(), insert, late, workspaceID); err != nil {
		t.Fatal(err)
	}
	made := s.create(h, `{"name":"Early"}`)
	first := s.events(h, "").Data
	last := first[len(first)-1]
	if last.Data.ID != made.ID.String() {
		t.Fatalf("%+v", last)
	}
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	rest := s.events(h, "?after="+strconv.FormatInt(last.Sequence, 10)).Data
	if len(rest) != 1 || rest[0].Data.ID != late.String() || rest[0].Sequence <= last.Sequence {
		t.Errorf("%+v", rest)
	}
}

// TestEvents_ConcurrentReadersAgree reads while programmes are made.
func TestEvents_ConcurrentReadersAgree(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	const writers, each = 4, 10
	done := make(chan bool)
	for range writers {
		go func() {
			for range each {
				s.do("POST", listPath, h, `{"name":"One of many"}`)
			}
			done <- true
		}()
	}
	seen, after := map[int64]string{}, int64(0)
	read := func() {
		for _, e := range s.events(h, fmt.Sprint("?limit=200&after=", after)).Data {
			seen[e.Sequence], after = e.Data.ID, e.Sequence
		}
	}
	for left := writers; left > 0; {
		select {
		case <-done:
			left--
		default:
			read()
		}
	}
	read()
	all := s.events(h, "?limit=200").Data
	if len(all) != len(seen) || len(all) < writers*each {
		t.Errorf("%d events, %d were read while they were written", len(all), len(seen))
	}
	for _, e := range all {
		if seen[e.Sequence] != e.Data.ID {
			t.Errorf("event %d was not read, or as another", e.Sequence)
		}
	}
}
