package app

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A sentRecord is a submission of a list.
type sentRecord struct {
	ID        uuid.UUID
	Status    string
	CreatedAt string
}

// pages reads all pages of the form's submissions with the filter, in pages of two.
func (s *service) pages(f formRecord, h header, filter string) (all []sentRecord) {
	s.t.Helper()
	cursor := ""
	for {
		a := s.get(formsPath+"/"+f.ID.String()+"/submissions?limit=2"+filter+cursor, h)
		var p struct {
			Data []sentRecord
			Meta struct{ NextCursor string }
		}
		if a.decode(s.t, &p); a.Status != 200 {
			s.t.Fatalf("%s: %d %s", filter, a.Status, a.Body)
		}
		if all = append(all, p.Data...); p.Meta.NextCursor == "" {
			return all
		}
		cursor = "&cursor=" + p.Meta.NextCursor
	}
}

func TestSubmissions_FilterByStatusAndTime(t *testing.T) {
	s := newService(t)
	h, f := s.form()
	kept := s.app.store.Engage(nil)
	sent := make([]sentSubmission, 6)
	for i := range sent {
		sent[i] = s.accepted(f)
	}
	for _, i := range []int{1, 3} {
		if err := kept.Process(t.Context(), uuid.Nil, sent[i].ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := kept.Reject(t.Context(), uuid.Nil, sent[4].ID, "no"); err != nil {
		t.Fatal(err)
	}
	all := s.pages(f, h, "") // newest first
	slices.Reverse(all)
	at := func(i int) string { return url.QueryEscape(all[i].CreatedAt) }
	for filter, want := range map[string][]int{
		"":                                   {5, 4, 3, 2, 1, 0},
		"&status=accepted":                   {5, 2, 0},
		"&status=processed":                  {3, 1},
		"&status=rejected":                   {4},
		"&createdSince=" + at(3):             {5, 4, 3},
		"&createdBefore=" + at(3):            {2, 1, 0},
		"&createdSince=9999-01-01T00:00:00Z": nil,
		"&createdSince=" + at(1) + "&createdBefore=" + at(5):                 {4, 3, 2, 1},
		"&createdSince=" + at(1) + "&status=accepted":                        {5, 2},
		"&updatedSince=" + at(0) + "&status=processed":                       {3, 1},
		"&updatedSince=" + at(0) + "&status=accepted":                        {5, 2, 0},
		"&updatedSince=" + at(5) + "&createdBefore=" + at(4):                 {3, 1},
		"&updatedSince=" + at(5) + "&createdSince=" + at(3):                  {5, 4, 3},
		"&updatedSince=" + at(5) + "&status=rejected&createdBefore=" + at(5): {4},
	} {
		var got []int
		for _, one := range s.pages(f, h, filter) {
			got = append(got, slices.IndexFunc(sent, func(x sentSubmission) bool { return x.ID == one.ID }))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", filter, got, want)
		}
	}
	path := formsPath + "/" + f.ID.String() + "/submissions"
	var p struct{ Meta struct{ NextCursor string } }
	s.get(path+"?limit=1&status=accepted", h).decode(t, &p)
	for query, field := range map[string]string{
		"?status=Accepted":                              "status",
		"?status=":                                      "status",
		"?status=accepted&status=accepted":              "status",
		"?createdSince=yesterday":                       "createdSince",
		"?createdBefore=":                               "createdBefore",
		"?cursor=" + p.Meta.NextCursor:                  "cursor",
		"?status=processed&cursor=" + p.Meta.NextCursor: "cursor",
		"?createdSince=" + at(0) + "&status=accepted&cursor=" + p.Meta.NextCursor: "cursor",
		"?createdUntil=2026-01-01T00:00:00Z":                                      "createdUntil",
	} {
		if _, named := s.get(path+query, h).fields(t)[field]; !named {
			t.Errorf("%s: %s is not named", query, field)
		}
	}
}

func (s *service) export(f formRecord, h header, query string) answer {
	s.t.Helper()
	return s.get(formsPath+"/"+f.ID.String()+"/submissions/export"+query, h)
}

func TestExport_HasEverySubmissionOnce(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	const many = 1234
	s.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		select gen_random_uuid(), $1, $2, gen_random_uuid(),
			jsonb_build_object('name', '=cmd|''/C calc''!A0 "' || n || '"', 'about', repeat('x', 3000), 'hours', -n),
			'[]', false, '2026-01-01T00:00:00Z'::timestamptz + make_interval(secs => n / 3) -- some at the same moment
		from generate_series(1, $3) n`, workspaceID, f.ID, many)

	lines := s.export(f, h, "?format=jsonl")
	if lines.Status != 200 || lines.Header.Get("Content-Type") != "application/jsonl; charset=utf-8" ||
		lines.Header.Get("Cache-Control") != "no-store" ||
		!strings.HasPrefix(lines.Header.Get("Content-Disposition"), "attachment; ") {
		t.Fatalf("%d %v", lines.Status, lines.Header)
	}
	var order []string
	for line := range strings.Lines(lines.Body) {
		var one struct {
			sentRecord
			Answers map[string]any
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(one.Answers["name"].(string), "=cmd") {
			t.Errorf("JSON Lines changes an answer: %v", one.Answers)
		}
		order = append(order, one.ID.String())
	}
	var listed []string
	for _, one := range s.pages(f, h, "&createdSince=2025-01-01T00:00:00Z") {
		listed = append(listed, one.ID.String())
	}
	if len(order) != many || !slices.Equal(order, listed) {
		t.Errorf("%d lines, %d in the list, or another order", len(order), len(listed))
	}

	table := s.export(f, h, "?format=csv")
	table.wants(t, 200).
		header(t, "Content-Type", "text/csv; charset=utf-8; header=present").
		header(t, "X-Content-Type-Options", "nosniff")
	content, marked := strings.CutPrefix(table.Body, "\ufeff")
	if !marked {
		t.Errorf("no byte order mark: %.40q", table.Body)
	}
	rows, err := csv.NewReader(strings.NewReader(content)).ReadAll()
	if err != nil || len(rows) != many+1 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	name, hours := slices.Index(rows[0], "answers.name"), slices.Index(rows[0], "answers.hours")
	for i, row := range rows[1:] {
		if row[0] != order[i] || !strings.HasPrefix(row[name], `'=cmd|'/C calc'!A0 "`) ||
			!strings.HasPrefix(row[hours], "-") {
			t.Fatalf("%q", row)
		}
	}
	half := s.export(f, h, "?format=csv&createdBefore="+url.QueryEscape("2026-01-01T00:00:10Z"))
	if got := strings.Count(half.Body, "\r\n"); got != 30 { // 1 to 29 and the names
		t.Errorf("%d lines", got)
	}
	if none := s.export(f, h, "?format=jsonl&status=processed"); none.Status != 200 || none.Body != "" {
		t.Errorf("%d %s", none.Status, none.Body)
	}
	head := s.do("HEAD", formsPath+"/"+f.ID.String()+"/submissions/export?format=csv", h, "")
	if head.Status != 200 || head.Body != "" || head.Header.Get("Content-Type") != table.Header.Get("Content-Type") {
		t.Errorf("HEAD: %d %v", head.Status, head.Header)
	}
}

func TestExport_Refusals(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	_, elsewhere := s.workspace()
	f := s.makeForm(h, allTypes)
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
		if _, named := s.export(f, h, query).fields(t)[field]; !named {
			t.Errorf("%s: %s is not named", query, field)
		}
	}
	s.export(f, elsewhere, "?format=csv").expect(t, 404, "NOT_FOUND", "")
	s.get(formsPath+"/x/submissions/export?format=csv", h).expect(t, 404, "NOT_FOUND", "")
	user := s.User()
	s.Member(workspaceID, user, perm.EngageReadForms, perm.EngageReadSubmissions)
	formsOnly := as(s.PAT(workspaceID, user, perm.EngageReadForms).Reveal(), workspaceID)
	s.export(f, formsOnly, "?format=csv").expect(t, 403, "FORBIDDEN", "")
}

// A third export of one credential is refused while two are being read.
func TestExport_TwoInFlightOfOneCredential(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	s.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		select gen_random_uuid(), $1, $2, gen_random_uuid(), jsonb_build_object('about', repeat('x', 50000)), '[]',
			false, now() - make_interval(secs => n) from generate_series(1, 600) n`, workspaceID, f.ID)
	path := formsPath + "/" + f.ID.String() + "/submissions/export?format=jsonl"
	var open []func()
	for range 2 {
		open = append(open, s.slowly(path, h))
	}
	a := s.get(path, h)
	if a.expect(t, 429, "RATE_LIMITED", ""); a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.get(formsPath, h).wants(t, 200)
	for _, stop := range open {
		stop()
	}
	s.insist("GET", path, h, "")
}

// slowly begins a request and reads nothing of its response until stop, which closes the connection.
func (s *service) slowly(path string, h header) (stop func()) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	request := "GET " + path + " HTTP/1.1\r\nHost: x\r\n"
	for name, value := range h {
		request += name + ": " + value + "\r\n"
	}
	if _, err := fmt.Fprint(c, request+"\r\n"); err != nil {
		s.t.Fatal(err)
	}
	first := make([]byte, 12)
	if _, err := c.Read(first); err != nil || string(first) != "HTTP/1.1 200" {
		s.t.Fatalf("%s %v", first, err)
	}
	return func() { _ = c.Close() }
}

// The audit log records an export. The export ends when its token is revoked or its user loses the permission.
func TestExport_EndsWithItsCredential(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]string{
		"the token is revoked": "update account.personal_access_tokens set revoked_at = now() where tenant_id = $1",
		"the permission is lost": `update account.memberships set permissions = '{engage:read:forms}'
			where tenant_id = $1`,
	} {
		s := ownService(t)
		workspaceID, h := s.workspace()
		f := s.makeForm(h, allTypes)
		s.Exec(`insert into resource.submissions
			(id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
			select gen_random_uuid(), $1, $2, gen_random_uuid(), jsonb_build_object('about', repeat('x', 50000)), '[]',
				false, now() - make_interval(secs => n) from generate_series(1, 600) n`, workspaceID, f.ID)
		path := s.server.URL + formsPath + "/" + f.ID.String() + "/submissions/export?format=jsonl"
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range h {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v", what, err)
		}
		s.Exec(end, workspaceID)
		read, err := io.Copy(io.Discard, response.Body)
		if err == nil || read > 25_000_000 {
			t.Errorf("%s: %d bytes were read: %v", what, read, err)
		}
		_ = response.Body.Close()
		if n := s.Count(`select count(*) from account.audit_events where action = 'form.exported' and tenant_id = $1
			and subject = 'form:' || $2::text and detail = '{"format": "jsonl"}'`, workspaceID, f.ID); n != 1 {
			t.Errorf("%d events in the audit log", n)
		}
		if strings.Contains(s.log.String(), `"level":"ERROR"`) {
			t.Errorf("%s: %s", what, s.log.String())
		}
	}
}
