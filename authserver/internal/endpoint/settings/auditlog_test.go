package settings_test

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestAudit_PagesAndExportAllEventsOfItsWorkspace(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	const events = 1234
	site.Fixture.Exec(`insert into account.audit_events (id, at, tenant_id, user_id, actor, action, subject, detail)
		select gen_random_uuid(), now() - (n / 7) * interval '1 minute', $1, $2::uuid, 'user:' || $2::uuid,
			'test.happened', 'n:' || n, jsonb_build_object('n', n)
		from generate_series(1, $3::int) n`, site.Fixture.WorkspaceID, ada.ID, events)
	site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, actor, action, subject)
			values (gen_random_uuid(), $1, 'admin', 'secret.happened', 'x')`, elsewhere)
	browser := site.SignedIn(ada)
	export := browser.Get("/settings/audit.jsonl?tenant=" + site.Fixture.WorkspaceID.String())
	if export.Status != http.StatusOK || !strings.HasPrefix(export.Header.Get("Content-Disposition"), "attachment") {
		t.Fatalf("%d %v", export.Status, export.Header)
	}
	seen, previous := map[string]bool{}, "9999"
	for text := range strings.Lines(export.Body) {
		var line struct{ ID, At, TenantID string }
		site.Must(json.Unmarshal([]byte(text), &line))
		if line.TenantID != site.Fixture.WorkspaceID.String() || seen[line.ID] ||
			line.At > previous+"~" && len(line.At) == len(previous) {
			t.Fatalf("event of another workspace, repeated, or out of order: %s", text)
		}
		seen[line.ID], previous = true, line.At
	}
	site.Equal("lines, with the event of the export itself", len(seen), events+1)
	shown := 0
	for path := "/settings/audit"; path != ""; {
		page := browser.Get(path).Wants(http.StatusOK).Lacks("secret.happened")
		shown += len(page.Elements("h3"))
		path = page.Attribute("a[href*='before=']", "href")
	}
	site.Equal("events on all pages", shown, events+1)
	browser.Get("/settings/audit?before=rubbish").Wants(http.StatusOK, "Exported the audit log")
}

func TestAudit_SearchSelectsEventsOfPageAndExports(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	eve, left := site.Member(perm.ProgrammesRead), site.Stranger()
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.users set name = 'Max Stone' where id = $1`, left.ID)
	site.Fixture.Exec(`update account.users set name = 'Eve Moss' where id = $1`, eve.ID)
	site.Fixture.Exec(`update account.oauth_clients set name = 'Sorter' where id = $1`, app.ID)
	const insert = `insert into account.audit_events (id, at, tenant_id, user_id, actor, action, subject, request_id)
		values (gen_random_uuid(), $2::timestamptz, $1, $3, 'admin', $4, $5, $6)`
	in := site.Fixture.WorkspaceID
	site.Fixture.Exec(insert, in, "2026-03-01T23:59:59Z", ada.ID, "test.request", "x", "req-1")
	site.Fixture.Exec(insert, in, "2026-03-02T23:59:59Z", eve.ID, "test.person", "x", "req-2")
	site.Fixture.Exec(insert, in, "2026-03-03T00:00:00Z", ada.ID, "test.application", "client:"+app.ID.String(), "")
	site.Fixture.Exec(insert, in, "2026-03-05T00:00:00Z", left.ID, "test.stranger", "x", "")
	site.Fixture.Exec(insert, in, "2026-03-06T00:00:00Z", left.ID, audit.MemberLeft, "x", "")
	browser, actions := site.SignedIn(ada), map[string]string{}
	for _, action := range []string{
		"test.request", "test.person", "test.application", "test.stranger", audit.MemberLeft,
	} {
		actions[action] = action
	}
	for query, want := range map[string]string{
		"&request=+req-1":                    "test.request",
		"&person=eve+m":                      "test.person",
		"&person=" + eve.Email:               "test.person",
		"&person=max+s":                      "", // no member, who is found by the whole address only
		"&person=" + left.Email:              "test.stranger " + audit.MemberLeft,
		"&application=SORT":                  "test.application",
		"&client=" + app.ID.String():         "test.application",
		"&client=" + in.String():             "",
		"&kind=members":                      audit.MemberLeft,
		"&kind=members&person=eve":           "",
		"&kind=x&until=2026-03-01":           "test.request",
		"&since=2026-03-02&until=2026-03-02": "test.person",
		"&until=2026-03-01":                  "test.request",
		"&since=2026-03-03&until=2026-03-03": "test.application",
		"&request=req-1&person=eve":          "",
		"&person=%25":                        "",
	} {
		for _, path := range []string{"/settings/audit", "/settings/audit.csv", "/settings/audit.jsonl"} {
			finds(browser, path+"?tenant="+in.String()+query, actions, want)
		}
	}
	browser.Get("/settings/audit?tenant=" + in.String() + "&person=eve+m").
		Contains(`href="/settings/audit.csv?tenant=` + in.String() + `&amp;person=eve&#43;m"`)
}

func TestAudit_CSVMarksFormulas(t *testing.T) {
	site, _, browser := inSettings(t, perm.ProgrammesRead)
	for _, text := range []string{`=HYPERLINK("https://x")`, "+1", "-1", "@SUM(A1)", "\t=1", "a\n=1,\"b\""} {
		site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, actor, action, subject, request_id)
			values (gen_random_uuid(), $1, $2, $2, $2, $2)`, site.Fixture.WorkspaceID, text)
	}
	rows := rowsOf(t, browser.Get("/settings/audit.csv?tenant="+site.Fixture.WorkspaceID.String()))
	if len(rows) < 7 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows[1:] {
		for _, cell := range row {
			if strings.IndexAny(cell, "=+-@\t") == 0 {
				t.Errorf("a cell begins with a formula: %q", cell)
			}
		}
	}
}

// rowsOf returns the rows of a CSV file, which begins with a byte order mark and which no cache stores.
func rowsOf(t *testing.T, page *browsertest.Page) [][]string {
	t.Helper()
	for name, value := range map[string]string{
		"Content-Type":           "text/csv;",
		"Content-Disposition":    `attachment; filename="`,
		"X-Content-Type-Options": "nosniff",
		"Cache-Control":          "no-store",
	} {
		if got := page.Header.Get(name); !strings.HasPrefix(got, value) {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	content, marked := strings.CutPrefix(page.Body, "\ufeff")
	rows, err := csv.NewReader(strings.NewReader(content)).ReadAll()
	if err != nil || !marked {
		t.Fatalf("marked: %t, %v: %.40q", marked, err, content)
	}
	return rows
}

// Both logs refuse days in the wrong order, with an error at the field.
func TestLogs_DaysInWrongOrderAreRefused(t *testing.T) {
	site, _, browser := inSettings(t)
	const want = "“From” must not be later than “To”"
	for _, path := range []string{"/settings/audit", "/settings/connectors/log"} {
		path += "?tenant=" + site.Fixture.WorkspaceID.String()
		browser.Get(path+"&since=2026-03-02&until=2026-03-01").As(path).Wants(http.StatusBadRequest, want)
		for _, days := range []string{"&since=2026-03-01&until=2026-03-01", "&since=2026-03-02", "&until=2026-03-01"} {
			browser.Get(path + days).As(path).Wants(http.StatusOK).Lacks(want)
		}
	}
}

const longEvents = 6_000

// longLog is a workspace with events of 2 kB, more than the buffers of a connection hold.
var longLog = testkit.Once(func(t testing.TB) *browsertest.Server {
	site := shared(t)
	site.Fixture.Exec(`insert into account.audit_events (id, at, tenant_id, actor, action, subject, detail)
		select gen_random_uuid(), now() - n * interval '1 second', $1, 'admin', 'test.event', 'x',
			jsonb_build_object('name', repeat('x', 2000)) from generate_series(1, $2::int) n`, site.Fixture.WorkspaceID,
		longEvents)
	return site
})

func inLongLog(t *testing.T) *browsertest.Server {
	t.Helper()
	site := shared(t)
	site.Fixture.WorkspaceID = longLog(t).Fixture.WorkspaceID
	return site
}

// begin requests an export and reads its first line. The server waits for the client to read the rest.
func begin(t *testing.T, site *browsertest.Server, browser *browsertest.Browser) (rest *bufio.Scanner, end func()) {
	t.Helper()
	path := site.URL + "/settings/audit.jsonl?tenant=" + site.Fixture.WorkspaceID.String()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	site.Must(err)
	for _, cookie := range browser.Cookies() {
		request.AddCookie(cookie)
	}
	response, err := new(http.Client).Do(request)
	site.Must(err)
	t.Cleanup(func() { _ = response.Body.Close() })
	rest = bufio.NewScanner(response.Body)
	if response.StatusCode != http.StatusOK || !rest.Scan() {
		t.Fatalf("%d %v", response.StatusCode, rest.Err())
	}
	return rest, func() { _ = response.Body.Close() }
}

// An export ends when its user loses the permission, and the client notices that it is incomplete.
func TestExport_EndsWithPermission(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{
		"permission removed": `update account.memberships set permissions = '{programmes:read:programmes}'
			where user_id = $1`,
		"sign-in ended": `update account.sign_ins set ended_at = now() where user_id = $1`,
		"no change":     `select $1::uuid`,
	} {
		t.Run(name, func(t *testing.T) {
			site := inLongLog(t)
			ada := developer(site, perm.ProgrammesRead)
			rest, _ := begin(t, site, site.SignedIn(ada))
			site.Fixture.Exec(end, ada.ID)
			lines := 1
			for rest.Scan() {
				lines++
			}
			if complete := rest.Err() == nil && lines >= longEvents; complete != (name == "no change") {
				t.Errorf("read %d lines, error %v", lines, rest.Err())
			}
		})
	}
}

// audited are logs whose events are read as told.
type audited struct {
	settings.Logs
	reads func()
}

func (a audited) EventsOfWorkspace(
	ctx context.Context, workspaceID uuid.UUID, search audit.Search, from audit.Cursor, limit int,
) ([]audit.Entry, error) {
	a.reads()
	return a.Logs.EventsOfWorkspace(ctx, workspaceID, search, from, limit)
}

// exporting returns a function that signs a new user in and returns the request for an export, of settings over the
// same store that call reads before each read of events.
func exporting(
	t *testing.T, site *browsertest.Server, reads func(),
) func(method string) func() *httptest.ResponseRecorder {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	pages, err := ui.New(log)
	site.Must(err)
	s, err := settings.New(settings.Deps{
		Store: settings.Store{
			Users:      site.Store.Accounts,
			Workspaces: site.Store.Accounts,
			Logs:       audited{site.Store.Logs, reads},
		},
		Sessions: site.Sessions,
		Pages:    pages,
		Keys:     seal.NewKeys(make([]byte, 32)),
		LogReads: audit.NewReads(),
		Log:      log,
	})
	site.Must(err)
	handler := site.Sessions.Load(s.Routes()["/settings/audit.jsonl"][http.MethodGet])
	return func(method string) func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/settings/audit.jsonl?tenant="+site.Fixture.WorkspaceID.String(), nil)
		for _, cookie := range site.SignedIn(developer(site)).Cookies() {
			r.AddCookie(cookie)
		}
		return func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w
		}
	}
}

// HEAD must not cost as much as the whole export, which nothing records.
func TestExport_HeadReadsOnePage(t *testing.T) {
	site, read := inLongLog(t), 0
	export := exporting(t, site, func() { read++ })
	head := export(http.MethodHead)()
	if head.Code != http.StatusOK || read != 1 || head.Body.Len() > 0 || head.Header().Get("Content-Type") == "" {
		t.Errorf("HEAD: %d after %d pages with %d bytes, %v", head.Code, read, head.Body.Len(), head.Header())
	}
	if export(http.MethodGet)(); read < 1+longEvents/500 {
		t.Errorf("GET reads %d pages", read-1)
	}
}

// At most 4 pages of logs are read at once. Another read waits up to 3 seconds for its turn.
func TestExport_ReadsOfAllUsersAreBounded(t *testing.T) {
	site := shared(t)
	reads, release := make(chan struct{}, 9), make(chan struct{})
	export := exporting(t, site, func() { reads <- struct{}{}; <-release })
	begin := func(ended chan<- int) {
		send := export(http.MethodGet)
		go func() { ended <- send().Code }()
	}
	ended, fifth := make(chan int, 5), make(chan int, 1)
	for range 4 {
		begin(ended)
		select {
		case <-reads:
		case status := <-ended:
			close(release)
			t.Fatalf("a read that has its turn: %d", status)
		}
	}
	began := time.Now()
	begin(fifth)
	select {
	case status := <-fifth:
		if took := time.Since(began); status != http.StatusTooManyRequests || took < 3*time.Second {
			t.Errorf("a fifth read: %d after %s", status, took)
		}
	case <-reads:
		t.Error("a fifth read began")
	}
	close(release)
	for i := range 5 {
		site.Equal("the status of a read that got its turn", <-ended, http.StatusOK)
		if i == 0 {
			begin(ended)
		}
	}
}

// A user has at most 2 exports and searches at once. Those of other users go on.
func TestExport_TwoAtOncePerUser(t *testing.T) {
	site := inLongLog(t)
	in := "?tenant=" + site.Fixture.WorkspaceID.String() + "&person=ada"
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	other := site.SignedIn(developer(site, perm.ProgrammesRead))
	_, end := begin(t, site, browser)
	begin(t, site, browser)
	var requests sync.WaitGroup
	for _, path := range []string{
		"/settings/audit", "/settings/audit.csv", connectionLog, connectionLog + ".jsonl", connectors,
	} {
		requests.Go(func() { // each gets 429 after 3 s
			browser.Get(path+in+"&q=ada").As(path).Wants(http.StatusTooManyRequests,
				"Too many searches and exports are running").HasHeader("Retry-After")
		})
		other.Get(path + in).As(path).Wants(http.StatusOK)
	}
	requests.Wait()
	end()
	browser.Get("/settings/audit" + in).Wants(http.StatusOK)
}

func TestAudit_EventsHaveRequestID(t *testing.T) {
	site, ada, browser := inSettings(t, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	ids := map[string]bool{}
	do := func(page *browsertest.Page, status int) *browsertest.Page {
		t.Helper()
		page.Wants(status)
		ids[page.Header.Get("X-Request-Id")] = true
		return page
	}
	approve := browsertest.Fields{"decision": "approve"}
	do(browser.Get(consentPath(app)).Send("/oauth/authorize", approve), http.StatusSeeOther)
	site.Redeemed(app, ada.ID) // not an HTTP request, so it has no request id
	do(browser.Get("/settings/apps").Send("/settings/apps/disconnect", nil), http.StatusSeeOther)
	site.Redeemed(app, ada.ID)
	ask := linked(browser, applications, applications+"/delete?")
	do(ask.Send(apps+"/delete", browsertest.Fields{"id": app.ID.String()}), http.StatusSeeOther)
	do(makeToken(browser, "export", "7", perm.ProgrammesRead), http.StatusOK)
	rows, err := site.Fixture.Owner.Query(t.Context(),
		`select action, request_id from account.audit_events where tenant_id = $1`, site.Fixture.WorkspaceID)
	site.Must(err)
	named := map[string]int{}
	var action, id string
	_, err = pgx.ForEachRow(rows, []any{&action, &id}, func() error {
		if ids[id] {
			named[action]++
		} else if _, err := uuid.Parse(id); err == nil || action != audit.GrantConsented {
			t.Errorf("%s names the request %q", action, id)
		}
		return nil
	})
	site.Must(err)
	// One consent on the page. Of the revocations, one is a disconnection and two come with the deletion of the
	// application: its active grant and the pending one of the page.
	for action, want := range map[string]int{
		audit.GrantConsented: 1, audit.GrantRevoked: 3, audit.ClientDeleted: 1, audit.TokenCreated: 1,
	} {
		site.Equal("events that name their request: "+action, named[action], want)
	}
}

func TestAudit_EveryActionHasWords(t *testing.T) {
	site := shared(t)
	var text strings.Builder
	for actions := range slices.Chunk(audit.Descriptions(), 25) { // as many as the page shows
		site.Fixture = site.Fixture.For(t)
		ada := developer(site)
		for _, d := range actions {
			site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail)
				values ($1, $2, $3, 'admin', $4, 'x',
					'{"permissions": ["programmes:read:programmes"], "changes": ["enable"]}')`,
				uuid.New(), site.Fixture.WorkspaceID, ada.ID, d.Action)
		}
		log := site.SignedIn(ada).Get("/settings/audit").Lacks("{") // each detail was filled in
		for _, d := range actions {
			log.Says("Event " + d.Action)
		}
		site.Equal("rows", len(log.Elements("h3")), len(actions))
		for _, row := range log.Elements("h3") {
			if _, known := audit.Describe(strings.TrimSpace(browsertest.TextOf(row))); known {
				t.Errorf("a row has no words: %s", browsertest.TextOf(row))
			}
		}
		text.WriteString(log.Text())
	}
	for _, words := range []string{" Now: “See programmes”", "The person who runs this service"} {
		if !strings.Contains(text.String(), words) {
			t.Errorf("does not say %q", words)
		}
	}
}

func TestApps_PausedConnectionNamesReason(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	site.Redeemed(app, ada.ID)
	browser := site.SignedIn(ada)
	const lost, without = "You no longer have any of these permissions", "Not available, because you no longer " +
		"have these permissions: "
	wants := func(holds []string, words string) {
		t.Helper()
		site.Fixture.Exec(`update account.memberships set permissions = $2 where user_id = $1`, ada.ID, holds)
		page := browser.Get("/settings/apps")
		for _, one := range []string{lost, without, "You are no longer a member of"} {
			if page.HasText(one) != (one == words) {
				t.Errorf("holding %v, says %q: %v", holds, one, page.HasText(one))
			}
		}
	}
	read, write := string(perm.ProgrammesRead), string(perm.ProgrammesWrite)
	wants([]string{read, write}, "")
	wants([]string{read}, without)
	wants([]string{}, lost)
	site.Fixture.Exec(`delete from account.memberships where user_id = $1`, ada.ID)
	const left = "You are no longer a member of Riverside Food Bank, so Donor sync has no access to it"
	browser.Get("/settings/apps").Says(left).Lacks(lost)
}
