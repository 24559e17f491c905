package torture

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// One workspace has more of everything than a statement may read: every request there ends, its background jobs end,
// and users of another workspace notice nothing.

const (
	eventsPath   = "/v1/events"
	webhooksPath = "/v1/webhooks"
	movesAtMost  = 1.25 // p99 of others' requests during a backlog, of that without one
	backlogEnds  = 10 * time.Minute
)

// A crowded workspace has a backlog of events, and many of everything else.
type crowded struct {
	p        *harness.Product
	ws       harness.TestWorkspace
	api      harness.API
	receiver *harness.Receiver
	client   string // of the application with many grants
	member   string // with many grants of that application
	form     string // with many submissions
	sizes    crowdSizes
}

type crowdSizes struct{ events, submissions, grants, members, tokens int }

func TestBacklog_RequestsEndAndOtherWorkspacesNoticeNothing(t *testing.T) {
	parallelIfShort(t)
	receiver := harness.NewReceiver(t)
	running := harness.Private(t, harness.Options{Worker: true, Settings: receiver.Settings()})
	c := newCrowded(t, running, receiver)
	others := newOthers(t, c)
	var summary []string
	said := func() string { return strings.Join(summary, "; ") }
	harness.Record(t, "%+v; %s", c.sizes, harness.Deferred[string](said))
	c.fill(t)
	c.readsEnd(t)
	summary = append(summary, others.compare(t, c), c.workEnds(t), c.writesEnd(t), c.erasureEnds(t))
	t.Log(strings.Join(summary, "; "))
}

func newCrowded(t *testing.T, running *stack.Stack, receiver *harness.Receiver) *crowded {
	t.Helper()
	p := harness.NewProduct(t, running, &seenSecrets)
	c := &crowded{p: p, ws: p.NewWorkspace(t), receiver: receiver, sizes: crowdSizes{
		events: harness.Rounds(3000, 1_000_000), submissions: harness.Rounds(1500, 300_000),
		grants: harness.Rounds(600, 100_000), members: harness.Rounds(300, 20_000), tokens: harness.Rounds(100, 5000),
	}}
	c.api = p.In(c.ws.Workspace, c.ws.Token)
	// The end of the test searches all rows for secrets: not millions of equal ones.
	t.Cleanup(func() { p.Database.Exec(t, "delete from account.events where tenant_id = $1", c.ws.Workspace.ID) })
	c.hook(t, "/crowded", "form.created")
	return c
}

// hook adds an endpoint to the workspace.
func (c *crowded) hook(t *testing.T, path, kind string) {
	t.Helper()
	c.api.JSON(t, http.MethodPost, webhooksPath, map[string]any{"url": c.receiver.URL + path, "types": []string{kind}}).
		Wants(t, http.StatusCreated)
}

// addEvents adds events of an hour ago that nothing has read: an endpoint that is added now does not get them.
func (c *crowded) addEvents(t *testing.T, number int) {
	t.Helper()
	c.p.Database.Exec(t, `insert into account.events (tenant_id, type, data, created_at)
		select $1, $3, jsonb_build_object('id', gen_random_uuid()),
		  clock_timestamp() - interval '1 hour'
		from generate_series(1, $2::int)`, c.ws.Workspace.ID, number, "programme.created")
}

// fill adds everything else. Copies of rows have all columns of the first row, whichever there are.
func (c *crowded) fill(t *testing.T) {
	t.Helper()
	connector := c.ws.Connector(t, harness.ReadProgrammes)
	c.client = connector.ClientID
	connector.Connect(t, c.p.Person(t, c.ws.Owner))
	c.copies(t, "account.grants", "jsonb_build_object('id', md5(n || 'g' || original.id)::uuid)", c.sizes.grants)
	c.copies(t, "account.personal_access_tokens", `jsonb_build_object(
		'id', md5(n || 't' || original.id)::uuid, 'name', 'Report ' || n,
		'hash', '\x' || md5(n || 'a' || original.id) || md5(n || 'b' || original.id))`, c.sizes.tokens)
	c.p.Database.Exec(t, `with added as (
			insert into account.users (id, email, name)
			select gen_random_uuid(), 'member' || n || '@' || $1 || '.example', 'Member ' || n
			from generate_series(1, $2::int) n returning id)
		insert into account.memberships (tenant_id, user_id, permissions)
		select $1::uuid, id, array['programmes:read:programmes'] from added`, c.ws.Workspace.ID, c.sizes.members)
	c.member = c.p.Database.Text(t, `select id::text from account.users where email = 'member1@' || $1 || '.example'`,
		c.ws.Workspace.ID)
	c.copies(t, "account.grants", `jsonb_build_object('id', md5(n || 'm' || original.id)::uuid, 'user_id', '`+
		c.member+`')`, c.sizes.grants)
	made := c.api.JSON(t, http.MethodPost, "/v1/engage/forms", map[string]any{
		"title": "Volunteer", "allowedOrigins": []string{"https://www.crowded.example"},
		"fields": []map[string]any{{"name": "hello", "label": "Hello", "type": "text", "required": true}},
	}).Wants(t, http.StatusCreated).Object(t)
	c.form, _ = made["id"].(string)
	c.p.Database.Exec(t, `insert into resource.submissions
			(id, tenant_id, form_id, token_id, answers, consents, trapped, created_at, finished_at, status)
		select gen_random_uuid(), $1::uuid, $2::uuid, gen_random_uuid(), '{"hello": "Good morning"}', '[]', false,
			at, at, 'rejected'
		from generate_series(1, $3::int) n, lateral (select now() - n * interval '1 second') as moments (at)`,
		c.ws.Workspace.ID, c.form, c.sizes.submissions)
	c.p.Database.Define(t, "analyze") // autovacuum, which is off in tests, does it within a minute
}

// copies adds copies of a row of the workspace, each with the changes.
func (c *crowded) copies(t *testing.T, table, changes string, number int) {
	t.Helper()
	c.p.Database.Exec(t, `insert into `+table+` select one.* from
		(select * from `+table+` where tenant_id = $1 limit 1) original cross join generate_series(1, $2::int) n
		cross join lateral jsonb_populate_record(null::`+table+`, to_jsonb(original) || `+changes+`) one`,
		c.ws.Workspace.ID, number)
}

// workEnds waits until each event has its sequence and no endpoint has anything to send.
func (c *crowded) workEnds(t *testing.T) string {
	t.Helper()
	began := time.Now()
	const left = `select count(*) from account.event_sequences s
		where s.tenant_id = $1 and (s.behind or exists (select from account.endings d where d.tenant_id = $1)
			or exists (select from account.events e where e.tenant_id = $1 and e.sequence is null)
			or exists (select from account.webhooks w where w.tenant_id = $1 and w.enabled and w.position < s.last))`
	for c.p.Database.Count(t, left, c.ws.Workspace.ID) > 0 {
		if time.Since(began) > backlogEnds {
			t.Fatalf("the work of the background has not ended after %s", backlogEnds)
		}
		time.Sleep(often)
	}
	return fmt.Sprintf("background work ended after %s", time.Since(began).Round(time.Second))
}

// others are users of another workspace.
type others struct {
	honest *honestUsers
	took   map[string]*[3][]time.Duration // by kind: in every second turn without a backlog, in the others, during one
}

func newOthers(t *testing.T, c *crowded) *others {
	t.Helper()
	h := newHonest(t, c.p)
	api := c.p.In(h.ws.Workspace, h.ws.Token)
	api.JSON(t, http.MethodPost, webhooksPath, map[string]any{
		"url": c.receiver.URL + "/others", "types": []string{"programme.created"},
	}).Wants(t, http.StatusCreated)
	h.kinds = []honestKind{
		{name: "refresh", want: http.StatusOK, ask: h.refresh},
		{name: "list", want: http.StatusOK, ask: h.get(harness.ListPath)},
		{name: "events", want: http.StatusOK, ask: h.get(eventsPath)},
		{name: "webhooks", want: http.StatusOK, ask: h.get(webhooksPath)},
		{name: "delivery", want: http.StatusCreated, ask: func(t *testing.T) (harness.Answer, error) {
			answer, err := tryWrite(t, api)
			if err == nil && answer.Status == http.StatusCreated {
				id, _ := answer.Object(t)["id"].(string)
				c.wantsDelivery(t, id)
			}
			return answer, err
		}},
	}
	o := &others{honest: h, took: map[string]*[3][]time.Duration{}}
	for _, kind := range h.kinds {
		o.took[kind.name] = &[3][]time.Duration{}
	}
	return o
}

// wantsDelivery waits until the endpoint of the other workspace has received the event of a programme.
func (c *crowded) wantsDelivery(t *testing.T, programme string) {
	has := func(r harness.Received) bool { return strings.Contains(string(r.Body), programme) }
	for end := time.Now().Add(calmWithin); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if slices.ContainsFunc(c.receiver.At("/others"), has) {
			return
		}
	}
	t.Errorf("the event of %s was not delivered", programme)
}

// compare lets the others work by turns without and with a backlog of the crowded workspace.
func (o *others) compare(t *testing.T, c *crowded) string {
	t.Helper()
	lasts := time.Second
	if harness.Long() {
		lasts = 15 * time.Second
	}
	c.workEnds(t)
	for turn := range harness.Rounds(1, 4) {
		o.work(t, lasts, turn%2, c)
		number := c.sizes.events
		if turn > 0 {
			number /= 10
		}
		c.addEvents(t, number)
		o.work(t, lasts, duringBacklog, c)
		t.Logf("turn %d: %s", turn, c.workEnds(t))
	}
	return o.judge(t)
}

const duringBacklog = 2

// work lets the others work, and the crowded workspace follow its events: it does so without a backlog as well, so that
// the backlog alone makes the difference.
func (o *others) work(t *testing.T, lasts time.Duration, when int, c *crowded) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() {
		for after := 0; ctx.Err() == nil; time.Sleep(often) {
			answer, err := c.api.Try(t, http.MethodGet, fmt.Sprint(eventsPath, "?limit=200&after=", after), "", "")
			if err != nil || answer.Status != http.StatusOK {
				t.Errorf("a read of the backlog: %v %s", err, answer)
				return
			}
			if data, _ := answer.Object(t)["data"].([]any); len(data) > 0 {
				last, _ := data[len(data)-1].(map[string]any)["sequence"].(float64)
				after = int(last)
			}
		}
	})
	o.honest.work(ctx, t, []string{"without a backlog", "without a backlog", "during a backlog"}[when])
	all.Wait()
	for kind, took := range o.honest.took {
		o.took[kind][when] = append(o.took[kind][when], took...)
	}
	clear(o.honest.took)
}

// judge compares the times by kind, if the machine is quiet: if those of every second turn without a backlog agree.
func (o *others) judge(t *testing.T) string {
	t.Helper()
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(o.took)) {
		took := o.took[kind]
		first, second := slowestOfAHundred(took[0]), slowestOfAHundred(took[1])
		quiet, during := slowestOfAHundred(slices.Concat(took[0], took[1])), slowestOfAHundred(took[duringBacklog])
		judged := harness.Long() && moved(first, second) <= movesAtMost && moved(second, first) <= movesAtMost
		part := fmt.Sprintf("%s p99 %s, during a backlog %s of %d", kind, quiet, during, len(took[duringBacklog]))
		if !judged {
			part += fmt.Sprintf(" (not judged: without one it was %s and %s)", first, second)
		}
		parts = append(parts, part)
		if judged && moved(quiet, during) > movesAtMost {
			t.Errorf("p99 of %s moves from %s to %s during the backlog of another workspace", kind, quiet, during)
		}
	}
	return strings.Join(parts, ", ")
}

// moved returns by what factor a time has grown. A millisecond is no growth: it is the unit of slowestOfAHundred.
func moved(before, after time.Duration) float64 {
	return float64(after-time.Millisecond) / float64(max(before, time.Millisecond))
}

// pagesAtMost is how many pages of each path are opened.
const pagesAtMost = 3

// readsEnd sends each read of the crowded workspace while its events have no sequence, and opens each of its pages.
func (c *crowded) readsEnd(t *testing.T) {
	t.Helper()
	c.addEvents(t, c.sizes.events/10)
	account := "/v1/account/tenants/" + c.ws.Workspace.ID
	form := "/v1/engage/forms/" + c.form
	hourAgo := url.QueryEscape(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	for _, path := range []string{
		eventsPath, eventsPath + "?limit=200&after=0", webhooksPath, "/v1/me", harness.ListPath, "/v1/engage/forms",
		"/v1/engage/supporters", form, form + "/submissions?limit=200", form + "/submissions?updatedSince=" + hourAgo,
	} {
		c.ends(t, "GET "+path, c.api.Get(t, path))
	}
	caller := c.p.As(c.ws.Token)
	for _, path := range []string{
		account + "/members", account + "/members?limit=200", account + "/invitations",
		c.ws.Clients(), c.ws.Clients() + "/" + c.client,
	} {
		c.ends(t, "GET "+path, caller.Get(t, path))
	}
	c.pagesEnd(t)
}

// ends checks that a request was answered as if the workspace were small.
func (c *crowded) ends(t *testing.T, request string, answer harness.Answer) {
	t.Helper()
	if answer.Status >= http.StatusBadRequest {
		t.Errorf("%s does not end well in a large workspace:\n%s", request, answer)
	}
}

// pagesEnd opens the pages to which the owner's pages lead.
func (c *crowded) pagesEnd(t *testing.T) {
	t.Helper()
	owner := c.p.Person(t, c.ws.Owner).SignedIn(t)
	opened, seen := map[string]int{}, map[string]bool{}
	waiting := []string{"/settings/user", "/settings/members?tenant=" + c.ws.Workspace.ID,
		"/settings/developers?tenant=" + c.ws.Workspace.ID}
	for len(waiting) > 0 {
		path := waiting[0]
		waiting = waiting[1:]
		below, _, _ := strings.Cut(path, "?")
		if seen[path] || opened[below] == pagesAtMost {
			continue
		}
		seen[path] = true
		opened[below]++
		page := owner.Open(t, c.p.AppURL+path)
		c.ends(t, "the page "+below, page.Answer)
		page.Find("a[href^='/settings']").Each(func(_ int, link *goquery.Selection) {
			if href, found := link.Attr("href"); found {
				next, _, _ := strings.Cut(href, "#")
				waiting = append(waiting, next)
			}
		})
	}
	if len(opened) < 8 {
		t.Errorf("%d pages were opened: %v", len(opened), opened)
	}
}

// writesEnd makes the changes that concern many records: an endpoint is added during a backlog, the connector policy is
// lowered, a member and then an application with many connections are removed. What the request does not end itself is
// refused at once, and ended in the background.
func (c *crowded) writesEnd(t *testing.T) string {
	t.Helper()
	c.addEvents(t, c.sizes.events/10)
	c.hook(t, "/late", "programme.created")
	caller := c.p.As(c.ws.Token)
	var took []string
	for _, change := range []struct {
		name, path, active string
		do                 func(t *testing.T)
	}{
		{name: "a policy", active: "ends_at > created_at + interval '7 days'", do: func(t *testing.T) {
			c.p.LimitConnectors(t, c.ws, "7", []string{"claude", "chatgpt", "other"}, []string{harness.ReadProgrammes})
		}},
		{name: "a member", path: "/v1/account/tenants/" + c.ws.Workspace.ID + "/members/" + c.member,
			active: "user_id = '" + c.member + "'"},
		{name: "an application", path: c.ws.Clients() + "/" + c.client, active: "client_id = '" + c.client + "'"},
	} {
		began := time.Now()
		if change.do != nil {
			change.do(t)
		} else {
			c.ends(t, "DELETE of "+change.name, caller.Send(t, http.MethodDelete, change.path, "", ""))
		}
		took = append(took, change.name+" "+time.Since(began).Round(time.Millisecond).String())
		for _, path := range []string{c.ws.Clients(), "/v1/account/tenants/" + c.ws.Workspace.ID + "/members"} {
			c.ends(t, "GET "+path+" after a change of "+change.name, caller.Get(t, path))
		}
		c.workEnds(t)
		if n := c.p.Database.Count(t, `select count(*) from account.grants where tenant_id = $1
			and state = 'active' and `+
			change.active, c.ws.Workspace.ID); n != 0 {
			t.Errorf("%d connections are left by a change of %s", n, change.name)
		}
	}
	if n := len(c.receiver.At("/late")); n != 0 {
		t.Errorf("a new endpoint got %d events of before", n)
	}
	return "changes took: " + strings.Join(took, ", ")
}

// erasureEnds deletes the form. More than 1,000 submissions are erased after a 202 (contract, section 6a).
func (c *crowded) erasureEnds(t *testing.T) string {
	t.Helper()
	began := time.Now()
	answer := c.api.Send(t, http.MethodDelete, "/v1/engage/forms/"+c.form, "", "")
	c.ends(t, "DELETE of a form", answer)
	if answer.Status == http.StatusAccepted {
		address, _ := answer.Object(t)["statusUrl"].(string)
		path := strings.TrimPrefix(address, c.p.BaseURL)
		c.api.Get(t, "/v1/engage/forms/"+c.form+"/submissions").Wants(t, http.StatusNotFound)
		for end := time.Now().Add(backlogEnds); time.Now().Before(end); time.Sleep(often) {
			if answer = c.api.Get(t, path).Wants(t, http.StatusOK); answer.Object(t)["status"] != "accepted" {
				break
			}
		}
	}
	if answer.Status == http.StatusOK && answer.Object(t)["deletedSubmissions"] != float64(c.sizes.submissions) {
		t.Errorf("the erasure of %d submissions ended with %s", c.sizes.submissions, answer)
	}
	return fmt.Sprintf("the form was erased in %s", time.Since(began).Round(time.Second))
}
