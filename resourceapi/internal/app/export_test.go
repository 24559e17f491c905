package app

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// A sentRecord is a submission of a list.
type sentRecord struct {
	ID        uuid.UUID
	Status    string
	CreatedAt string
}

func TestSubmissions_FilterByStatusAndTime(t *testing.T) {
	s, h, f := newForm(t)
	ids := make([]uuid.UUID, 6)
	for i := range ids {
		ids[i] = s.accepted(f).ID
	}
	for _, i := range []int{1, 3} {
		s.processOne(ids[i])
	}
	s.Exec("update resource.submissions set trapped = true where id = $1", ids[4])
	s.processOne(ids[4])
	path := f.own() + "/submissions"
	all := recordsOf[sentRecord](s, path+"?limit=2", h) // newest first
	slices.Reverse(all)
	at := func(i int) string { return url.QueryEscape(all[i].CreatedAt) }
	for filter, want := range map[string][]int{
		"":                  {5, 4, 3, 2, 1, 0},
		"&status=processed": {3, 1},
		"&createdSince=" + at(1) + "&createdBefore=" + at(5):                 {4, 3, 2, 1},
		"&createdSince=" + at(1) + "&status=accepted":                        {5, 2},
		"&updatedSince=" + at(0) + "&status=processed":                       {3, 1},
		"&updatedSince=" + at(0) + "&status=accepted":                        {5, 2, 0},
		"&updatedSince=" + at(5) + "&createdBefore=" + at(4):                 {3, 1},
		"&updatedSince=" + at(5) + "&createdSince=" + at(3):                  {5, 4, 3},
		"&updatedSince=" + at(5) + "&status=rejected&createdBefore=" + at(5): {4},
	} {
		var got []int
		for _, one := range recordsOf[sentRecord](s, path+"?limit=2"+filter, h) {
			got = append(got, slices.Index(ids, one.ID))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", filter, got, want)
		}
	}
	cursor := pageOf[sentRecord](s, path+"?limit=1&status=accepted", h).Meta.NextCursor
	for query, field := range map[string]string{
		"?status=Accepted":                   "status",
		"?status=":                           "status",
		"?status=accepted&status=accepted":   "status",
		"?createdSince=yesterday":            "createdSince",
		"?createdBefore=":                    "createdBefore",
		"?cursor=" + cursor:                  "cursor",
		"?status=processed&cursor=" + cursor: "cursor",
		"?createdUntil=2026-01-01T00:00:00Z": "createdUntil",
		"?createdSince=" + at(0) + "&status=accepted&cursor=" + cursor: "cursor",
	} {
		s.get(path+query, h).names(t, field)
	}
}

func (s *service) export(f formRecord, h header, query string) answer {
	s.t.Helper()
	return s.get(f.own()+"/submissions/export"+query, h)
}

func TestExport_HasEverySubmissionOnce(t *testing.T) {
	s, h, f := newForm(t)
	const many = 1234
	s.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		select gen_random_uuid(), $1, $2, gen_random_uuid(),
			jsonb_build_object('name', '=cmd|''/C calc''!A0 "' || n || '"', 'about', repeat('x', 3000), 'hours', -n),
			'[]', false, '2026-01-01T00:00:00Z'::timestamptz + make_interval(secs => n / 3) -- some at the same moment
		from generate_series(1, $3) n`, h.workspace(), f.ID, many)

	lines := s.export(f, h, "?format=jsonl").wants(t, 200).
		header(t, "Content-Type", "application/jsonl; charset=utf-8").
		header(t, "Cache-Control", "no-store")
	if sent := lines.Header.Get("Content-Disposition"); !strings.HasPrefix(sent, "attachment; ") {
		t.Errorf("Content-Disposition: %s", sent)
	}
	var order, listed []string
	for line := range strings.Lines(lines.Body) {
		var one struct {
			sentRecord
			Answers map[string]any
		}
		must(t, json.Unmarshal([]byte(line), &one))
		if !strings.HasPrefix(one.Answers["name"].(string), "=cmd") {
			t.Errorf("JSON Lines changes an answer: %v", one.Answers)
		}
		order = append(order, one.ID.String())
	}
	list := f.own() + "/submissions?limit=200&createdSince=2025-01-01T00:00:00Z"
	for _, one := range recordsOf[sentRecord](s, list, h) {
		listed = append(listed, one.ID.String())
	}
	if len(order) != many || !slices.Equal(order, listed) {
		t.Errorf("%d lines, %d in the list, or another order", len(order), len(listed))
	}

	table := s.export(f, h, "?format=csv").wants(t, 200).
		header(t, "Content-Type", "text/csv; charset=utf-8; header=present").
		header(t, "X-Content-Type-Options", "nosniff")
	content, marked := strings.CutPrefix(table.Body, "\ufeff")
	if !marked {
		t.Errorf("no byte order mark: %.40q", table.Body)
	}
	rows := orFail(csv.NewReader(strings.NewReader(content)).ReadAll())(t)
	if len(rows) != many+1 {
		t.Fatalf("%d rows", len(rows))
	}
	name, hours := slices.Index(rows[0], "answers.name"), slices.Index(rows[0], "answers.hours")
	for i, row := range rows[1:] {
		if row[0] != order[i] || !strings.HasPrefix(row[name], `'=cmd|'/C calc'!A0 "`) ||
			!strings.HasPrefix(row[hours], "-") {
			t.Fatalf("row %d, of submission %s: %q", i, order[i], row)
		}
	}
	half := s.export(f, h, "?format=csv&createdBefore="+url.QueryEscape("2026-01-01T00:00:10Z"))
	if got := strings.Count(half.Body, "\r\n"); got != 30 { // 1 to 29 and the names
		t.Errorf("%d lines", got)
	}
	s.export(f, h, "?format=jsonl&status=processed").wants(t, 200).is(t, "")
	s.do("HEAD", f.own()+"/submissions/export?format=csv", h, "").wants(t, 200).is(t, "").
		header(t, "Content-Type", table.Header.Get("Content-Type"))
}

func TestExport_Refusals(t *testing.T) {
	s, h, f := newForm(t)
	elsewhere := s.workspace()
	for query, field := range map[string]string{
		"":                              "format",
		"?format=xlsx":                  "format",
		"?format=csv&format=csv":        "format",
		"?format=csv&status=x":          "status",
		"?format=csv&createdSince=x":    "createdSince",
		"?format=csv&limit=1":           "limit",
		"?format=csv&cursor=x":          "cursor",
		"?format=csv&updatedSince=2026": "updatedSince",
	} {
		s.export(f, h, query).names(t, field)
	}
	s.export(f, elsewhere, "?format=csv").expect(t, 404, "NOT_FOUND", "")
	s.get(formsPath+"/x/submissions/export?format=csv", h).expect(t, 404, "NOT_FOUND", "")
}

// The audit log records an export. The export ends when its token is revoked or its user loses the permission. A third
// export of one credential is refused while two are being read.
func TestExport_EndsWithItsCredential(t *testing.T) {
	t.Parallel()
	own := ownService(t)
	for what, end := range map[string]string{
		"the token is revoked": "update account.personal_access_tokens set revoked_at = now() where tenant_id = $1",
		"the permission is lost": `update account.memberships set permissions = '{engage:read:forms}'
			where tenant_id = $1`,
	} {
		s := own.forTest(t)
		h := s.workspace()
		f := s.makeForm(h, allTypes)
		s.longSubmissions(f, 600) // more than the buffers of two connections
		path := f.own() + "/submissions/export?format=jsonl"
		begin := func() *http.Response {
			request := orFail(http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+path, nil))(t)
			for name, value := range h {
				request.Header.Set(name, value)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%s: %v", what, err)
			}
			return response
		}
		one, other := begin(), begin()
		s.get(path, h).expect(t, 429, "RATE_LIMITED", "").header(t, "Retry-After", "*")
		s.get(formsPath, h).wants(t, 200)
		_ = other.Body.Close()
		s.Exec(end, h.workspace())
		read, err := io.Copy(io.Discard, one.Body)
		if err == nil || read > 25_000_000 {
			t.Errorf("%s: %d bytes were read: %v", what, read, err)
		}
		_ = one.Body.Close()
		s.wantsRows(2, "account.audit_events", `action = 'form.exported' and subject = 'form:' || $1::text
			and detail = '{"format": "jsonl"}'`, f.ID)
		s.logLacks(`"level":"ERROR"`)
	}
}

// longSubmissions adds n submissions with answers of 50 kB.
func (s *service) longSubmissions(f formRecord, n int) {
	s.t.Helper()
	s.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		select gen_random_uuid(), $1, $2, gen_random_uuid(), jsonb_build_object('about', repeat('x', 50000)), '[]',
			false, now() - make_interval(secs => n) from generate_series(1, $3::int) n`, f.workspaceID, f.ID, n)
}
