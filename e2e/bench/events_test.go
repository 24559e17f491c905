package bench

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// Paths of the API, and the sizes of the part events, which -short reduces.
const (
	importsPath = harness.ListPath + "/imports"
	hooksPath   = "/v1/webhooks"
	hooksEach   = 20 // endpoints of a workspace: the most it may have

	importRows       = 10_000
	quietWithin      = 2 * time.Minute
	betweenLatencies = 200 * time.Millisecond
)

type eventSizes struct {
	workspaces int // with hooksEach endpoints each
	burst      int // events of each of these workspaces at once
	latencies  int // events one by one
	unread     int // events of one workspace that nothing has read
	rounds     int // of imports
}

// TestEvents measures imports until their events can be read, reads of many events, and deliveries to webhooks.
func TestEvents(t *testing.T) {
	r := begin(t, "events")
	sizes := eventSizes{workspaces: 5, burst: 200, latencies: 100, unread: *many, rounds: 5}
	if testing.Short() {
		sizes = eventSizes{workspaces: 1, burst: 20, latencies: 10, unread: 10_000, rounds: 1}
	}
	receiver := newTimedReceiver(t)
	dir := t.TempDir()
	running := harness.Private(t, harness.Options{Durable: true,
		Settings: map[string]string{"ALMONER_WEBHOOK_CA": receiver.certificate, profilesSetting: dir}})
	e := &eventBench{r, sizes, receiver, running, harness.NewProduct(t, running, &harness.Secrets{}), dir}
	r.line("One process of resourceapi, which is the worker too, with the receiver and its TLS on the same " +
		"processors.\nCPU is in microseconds of the process and of its Postgres.\n")
	r.line("| what | figure | CPU | Postgres |\n|---|---|---|---|")
	e.imports(t)
	e.deliveries(t)
	e.reads(t)
	r.write(t)
}

// An eventBench is a stack whose webhooks go to the receiver.
type eventBench struct {
	*report
	eventSizes
	receiver *timedReceiver
	running  *stack.Stack
	product  *harness.Product
	profiles string
}

// row writes what something cost: per is how often it happened.
func (e *eventBench) row(what, figure string, before, after [3]time.Duration, per int) {
	cost := func(i int) string { return orNone((after[i]-before[i]).Seconds()*1e6/float64(max(per, 1)), 0) }
	e.line("| %s | %s | %s | %s |", what, figure, cost(0), cost(1))
}

func (e *eventBench) spent() [3]time.Duration { return resourcesOf(e.running, ourselves).spent() }

// in returns the API of a new workspace, and the workspace.
func (e *eventBench) in(t *testing.T) (harness.API, harness.TestWorkspace) {
	t.Helper()
	ws := e.product.NewWorkspace(t)
	return e.product.In(ws.Workspace, ws.Token), ws
}

// imports measures an import from its request to its end, and from there until a client has read each of its events.
func (e *eventBench) imports(t *testing.T) {
	var file strings.Builder
	file.WriteString("name,summary,status,startsOn,endsOn\n")
	rows := importRows
	if testing.Short() {
		rows = 1000
	}
	for i := range rows {
		fmt.Fprintf(&file, "Food parcels of round %d,Parcels for families in the district,active,2026-01-01,\n", i)
	}
	var ends, reads []float64
	before := e.spent()
	for range e.rounds {
		api, ws := e.in(t)
		began := time.Now()
		answer := api.Send(t, http.MethodPost, importsPath, "text/csv", file.String()).Wants(t, http.StatusAccepted)
		address, _ := answer.Object(t)["statusUrl"].(string)
		path := strings.TrimPrefix(address, e.product.BaseURL)
		for api.Get(t, path).Wants(t, http.StatusOK).Object(t)["status"] != "processed" {
			if time.Since(began) > quietWithin {
				t.Fatal("the import does not end")
			}
			time.Sleep(10 * time.Millisecond)
		}
		ended := time.Now()
		ends = append(ends, ended.Sub(began).Seconds())
		e.follow(t, ws, rows)
		reads = append(reads, time.Since(ended).Seconds())
	}
	end, read := slices.Max(ends), slices.Max(reads)
	e.row(fmt.Sprintf("import of %d rows, and reading its events; a row", rows),
		fmt.Sprintf("%.2f s and %.2f s (medians of %d)", middle(ends), middle(reads), e.rounds),
		before, e.spent(), rows*e.rounds)
	e.wants(fmt.Sprintf("import of %d rows, until it has ended, longest of %d", rows, e.rounds),
		"at most 2 s", end, " s", end <= 2)
	e.wants("its events, from its end until all were read", "at most 1 s", read, " s", read <= 1)
}

// follow reads the events of a workspace, page by page, until it has read that many. Its client does not check the
// responses against the description of the API, as harness.API does.
func (e *eventBench) follow(t *testing.T, ws harness.TestWorkspace, all int) {
	t.Helper()
	client, url := &http.Client{}, resourcesOf(e.running, ourselves).url
	for after, seen, end := int64(0), 0, time.Now().Add(10*time.Minute); seen < all; {
		request, _ := http.NewRequest(http.MethodGet, fmt.Sprintf("%s/v1/events?limit=200&after=%d", url, after), nil)
		request.Header.Set("X-Tenant-Id", ws.Workspace.ID)
		request.Header.Set("Authorization", "Bearer "+ws.Token)
		var page struct {
			Error struct{ Code string }
			Data  []struct{ Sequence int64 }
		}
		response, err := client.Do(request)
		if decode(t, response, err, &page); page.Data == nil {
			t.Fatalf("the events are refused: %s", page.Error.Code)
		}
		for _, one := range page.Data {
			if one.Sequence != after+1 {
				t.Fatalf("sequence %d follows %d", one.Sequence, after)
			}
			after = one.Sequence
		}
		if seen += len(page.Data); time.Now().After(end) {
			t.Fatalf("%d of %d events were read", seen, all)
		}
	}
}

// reads measures a client that follows a workspace with many events: first those that nothing has read, then again.
func (e *eventBench) reads(t *testing.T) {
	_, ws := e.in(t)
	e.addEvents(t, ws, e.unread)
	for _, what := range []string{"reading events that nothing has read; an event", "reading them again; an event"} {
		before, began := e.spent(), time.Now()
		e.follow(t, ws, e.unread)
		rate := float64(e.unread) / time.Since(began).Seconds()
		e.row(what, fmt.Sprintf("%.0f/s", rate), before, e.spent(), e.unread)
		what, _, _ = strings.Cut(what, ";")
		e.wants(fmt.Sprintf("%s, %d of them, one client", what, e.unread),
			"at least 20000/s", rate, "/s", rate >= 20_000)
	}
}

// addEvents adds events as imports do.
func (e *eventBench) addEvents(t *testing.T, ws harness.TestWorkspace, number int) {
	t.Helper()
	e.product.Database.Exec(t, `insert into account.events (tenant_id, type, data)
		select $1, 'programme.created', jsonb_build_object('id', gen_random_uuid()) from generate_series(1, $2::int)`,
		ws.Workspace.ID, number)
}

// deliveries measures the webhooks of some workspaces: many events at once, and one by one, the latter also beside
// endpoints that never answer and beside a backlog of another workspace.
func (e *eventBench) deliveries(t *testing.T) {
	var all []followed
	for range e.workspaces {
		all = append(all, e.followed(t, hooksEach, 0))
	}
	endpoints := e.workspaces * hooksEach
	quiet := e.latency(t, all, "one by one")
	e.wants(fmt.Sprintf("from commit to delivery, p99, %d endpoints", endpoints),
		"at most 1 s", quiet, " s", quiet <= 1)

	number := e.burst * endpoints
	before, began := e.spent(), time.Now()
	e.receiver.expect(number)
	for _, ws := range all {
		e.addEvents(t, ws.ws, e.burst)
	}
	e.receiver.wait(t)
	rate := float64(number) / time.Since(began).Seconds()
	e.row(fmt.Sprintf("%d events for each of %d endpoints; a delivery", e.burst, endpoints),
		fmt.Sprintf("%.0f/s", rate), before, e.spent(), number)
	e.wants("deliveries to a receiver that answers at once, one worker", "at least 1000/s", rate, "/s", rate >= 1000)

	silent := e.besideSilent(t, all)
	e.wants("the same p99 beside as many endpoints that never answer, of that without",
		"at most 1.25", silent/quiet, "", silent/quiet <= 1.25)
	e.addEvents(t, e.followed(t, 0, 1).ws, e.unread)
	e.latency(t, all, "one by one, another workspace has "+fmt.Sprint(e.unread)+" events")
}

// besideSilent adds workspaces whose endpoints never answer, and some where only a few of them do.
func (e *eventBench) besideSilent(t *testing.T, all []followed) float64 {
	for range e.workspaces {
		silent := e.followed(t, 0, hooksEach)
		silent.api.JSON(t, http.MethodPost, harness.ListPath, map[string]any{"name": "Silence"}).
			Wants(t, http.StatusCreated)
		all = append(all, e.followed(t, 2, 2))
	}
	return e.latency(t, all, "one by one, others never answer")
}

// A followed is a workspace with endpoints, some of which answer.
type followed struct {
	ws    harness.TestWorkspace
	api   harness.API
	quick int
}

func (e *eventBench) followed(t *testing.T, quick, silent int) followed {
	t.Helper()
	api, ws := e.in(t)
	e.hook(t, api, "/silent", silent)
	e.hook(t, api, "/quick", quick)
	return followed{ws, api, quick}
}

// hook adds endpoints to a workspace.
func (e *eventBench) hook(t *testing.T, api harness.API, path string, number int) {
	t.Helper()
	for range number {
		api.JSON(t, http.MethodPost, hooksPath, map[string]any{
			"url": e.receiver.url + path, "types": []string{"programme.created"},
		}).Wants(t, http.StatusCreated)
	}
}

// latency makes changes one by one and returns the seconds from the commit of each to its deliveries, at p99.
func (e *eventBench) latency(t *testing.T, all []followed, what string) float64 {
	t.Helper()
	number := 0
	for i := range e.latencies {
		number += all[i%len(all)].quick
	}
	before := e.spent()
	e.receiver.expect(number)
	for i := range e.latencies {
		all[i%len(all)].api.JSON(t, http.MethodPost, harness.ListPath, map[string]any{"name": "Latency"}).
			Wants(t, http.StatusCreated)
		time.Sleep(betweenLatencies)
	}
	took := e.receiver.wait(t)
	s := sample{latencies: took}
	p50, p99 := s.percentile(0.5).Seconds(), s.percentile(0.99).Seconds()
	e.row(what+"; a delivery", fmt.Sprintf("p50 %.3f s, p99 %.3f s", p50, p99), before, e.spent(), number)
	return p99
}

// A timedReceiver is a webhook endpoint that measures how long after its commit an event arrives. It never answers at
// the path /silent.
type timedReceiver struct {
	url, certificate string

	mu    sync.Mutex
	took  []time.Duration
	left  int
	whole chan struct{}
}

func newTimedReceiver(t *testing.T) *timedReceiver {
	t.Helper()
	r := &timedReceiver{}
	released, release := context.WithCancel(context.Background())
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/silent" {
			select {
			case <-released.Done():
			case <-request.Context().Done():
			}
			return
		}
		r.receive(request)
		w.WriteHeader(http.StatusNoContent)
	}))
	r.url = server.URL
	r.certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	t.Cleanup(server.Close)
	t.Cleanup(release)
	return r
}

// receive notes an event. Its timestamp is the moment of its change, shortly before the commit.
func (r *timedReceiver) receive(request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	var event struct{ Timestamp time.Time }
	_ = json.Unmarshal(body, &event)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = append(r.took, time.Since(event.Timestamp))
	if r.left--; r.left == 0 {
		close(r.whole)
	}
}

// expect makes wait wait for a number of deliveries.
func (r *timedReceiver) expect(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took, r.left, r.whole = nil, number, make(chan struct{})
}

// wait waits for the deliveries and returns how long they took, sorted.
func (r *timedReceiver) wait(t *testing.T) []time.Duration {
	t.Helper()
	select {
	case <-r.whole:
	case <-time.After(5 * time.Minute):
		r.mu.Lock()
		defer r.mu.Unlock()
		t.Fatalf("%d deliveries are missing", r.left)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.took)
	return r.took
}
