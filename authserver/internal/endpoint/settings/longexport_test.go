package settings_test

import (
	"bufio"
	"net/http"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

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
	if err != nil {
		t.Fatal(err)
	}
	for _, cookie := range browser.Cookies() {
		request.AddCookie(cookie)
	}
	response, err := new(http.Client).Do(request)
	if err != nil {
		t.Fatal(err)
	}
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
	for name, end := range map[string]func(site *browsertest.Server, user browsertest.Person){
		"permission removed": func(site *browsertest.Server, user browsertest.Person) {
			site.Fixture.Exec(`update account.memberships set permissions = '{programmes:read:programmes}'
				where user_id = $1`, user.ID)
		},
		"sign-in ended": func(site *browsertest.Server, user browsertest.Person) {
			site.Fixture.Exec("update account.sign_ins set ended_at = now() where user_id = $1", user.ID)
		},
		"no change": func(*browsertest.Server, browsertest.Person) {},
	} {
		t.Run(name, func(t *testing.T) {
			site := inLongLog(t)
			ada := developer(site, perm.ProgrammesRead)
			rest, _ := begin(t, site, site.SignedIn(ada))
			end(site, ada)
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

// A search finds members by parts of their names, and other users only by their whole e-mail address.
func TestAudit_SearchByPersonIsBounded(t *testing.T) {
	site := shared(t)
	ada, eve := developer(site, perm.ProgrammesRead), site.Stranger()
	site.Fixture.Exec(`update account.users set name = 'Eve Moss' where id = $1`, eve.ID)
	site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, user_id, actor, action, subject)
		values (gen_random_uuid(), $1, $2, 'admin', 'test.person', 'x')`, site.Fixture.WorkspaceID, eve.ID)
	browser := site.SignedIn(ada)
	for person, want := range map[string]bool{"eve+m": false, eve.Email: true} {
		page := browser.Get("/settings/audit?tenant=" + site.Fixture.WorkspaceID.String() + "&person=" + person)
		if got := page.HasText("test.person"); page.Status != http.StatusOK || got != want {
			t.Errorf("%s: %d, %v", person, page.Status, got)
		}
	}
}
