// Package bench measures the speed of the product, compared with a minimal server and with a peer.
//
// `make bench PART=…` runs one part and writes its results to the part's section of RESULTS.md. The measurements are no
// part of `make test`.
//
//   - speed: every kind of request at 1, 8 and 32 connections, compared with a floor server, which runs one Redis
//     script and signs one access token; for lists, with the product built without its gate; and with
//     node-oidc-provider (peer/), if Node is installed.
//   - growth: refreshes, every list, page and search, and jobs of the background with little and with much data in the
//     stores, and the storage that a grant takes.
//   - soak: the memory of both services during ten minutes of load.
//   - signin: sign-ins and refreshes during a flood of wrong passwords.
//   - cluster: two processes of each service with a Redis Cluster, compared with one of each.
//   - citus: a coordinator and two workers of Citus, compared with one Postgres.
//   - landed: the previous release, compared with the current code.
//   - usage: the product, compared with a build that counts no usage and notes no networks.
//   - submissions: submissions of a public form, compared with refreshes and with a server that only stores them.
//   - events: imports until their events can be read, reads of many events, and deliveries to webhooks.
//
// The stack is the one that `make run` starts, with durable stores. One generator sends all kinds of requests in turn,
// in rounds, in a closed loop, so that other load on the machine affects all kinds alike: compare only figures of one
// section. PROFILE=1 writes profiles of the services under load; SHORT=1 runs a part at a small scale and writes no
// results.
package bench

import (
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

var (
	measure = flag.Bool("measure", false, "measure, and write RESULTS.md")
	rounds  = flag.Int("rounds", 6, "rounds of the part speed; an even number, as every second one is in reverse order")
	each    = flag.Duration("each", 1500*time.Millisecond, "how long each load runs in a round")
)

// These are the names of the loads.
const (
	codeExchange  = "code exchange"
	refreshing    = "refresh"
	floorWork     = "one script and one signature"
	introspection = "introspection"
	listConnector = "list of 50, connector's token"
	listPAT       = "list of 50, personal access token"
	listUngated   = "list of 50"
	ourselves     = "Almoner"
	ungatedName   = "without the gate"
)

func TestMain(m *testing.M) {
	if redis := os.Getenv(floorVariable); redis != "" {
		fmt.Fprintln(os.Stderr, serveFloor(redis, os.Getenv(floorJobsVariable)))
		os.Exit(1)
	}
	flag.Parse()
	if testing.Short() {
		*rounds, *each = 1, min(*each, time.Second)
	}
	os.Exit(m.Run())
}

// begin begins a part, or skips the test without -measure.
func begin(t *testing.T, part string) *report {
	t.Helper()
	if !*measure {
		t.Skip("make bench measures")
	}
	return newReport(part)
}

func TestSpeed(t *testing.T) {
	r := begin(t, "speed")
	b := newBench(t)
	loads := b.loads(t)
	if p := startPeer(t, r); p != nil {
		loads = append(loads, p.loads(t)...)
	}
	all, order := measureAll(t, inTurn(loads), []int{1, 8, 32})
	r.speed(all, order)
	r.profileEach(t, loads, b.profiles)
	r.write(t)
}

// A bench is a running stack with everything that the loads need.
type bench struct {
	product        *harness.Product
	owner          *harness.Person
	connector      harness.Connector
	account, lists target
	ungated, floor target
	demoWorkspaces map[string]string // by target URL: each stack has its own demo
	codes          chan [2]string    // code and verifier
	openForms      chan string       // tokens of opened public forms
	profiles       string            // directory of the services' profiles
	chains         chains
}

// withoutGate removes the gate from the list: the same handler and query, with the same load, for any caller.
func withoutGate() []harness.Fault {
	const gate, reads = "resourceapi/internal/gate/gate.go", "resourceapi/internal/store/postgres/requests.go"
	return []harness.Fault{
		{
			File: gate,
			Old: `	held, err := g.identify(r)
	if err != nil {
		return err
	}
	turn, err :=`,
			New: `	workspaceID, err := readWorkspace(r.Header)
	if err != nil {
		return err
	}
	ungated, err := prepare(r, workspaceID)
	if err != nil {
		return err
	}
	if _, err := ungated.ReadStanding(r.Context(), standing.Query{}); err != nil {
		return err
	}
	if g != nil {
		return ungated.Serve(w, r, Caller{WorkspaceID: workspaceID})
	}
	var held presented
	turn, err :=`,
		},
		{File: reads, Old: "	batch.Queue(standing.SQL, standing.Args(questions)...)\n", New: ""},
		{
			File: reads,
			Old: `	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	standings, err := standing.Scan(rows, len(all))
	if err != nil {
		return nil, err
	}
`,
			New: `	standings := make([]*standing.Standing, len(all))
	for i := range standings {
		standings[i] = &standing.Standing{}
	}
	var rows pgx.Rows
	var err error
`,
		},
	}
}

func TestWithoutGate_FitsTheSource(t *testing.T) { harness.Faulty(t, withoutGate()...) }

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	running := harness.Private(t, harness.Options{Durable: true, Settings: map[string]string{profilesSetting: dir}})
	open := harness.Private(t, harness.Options{Durable: true, Binaries: harness.Broken(t, withoutGate()...)})
	b := enter(t, running)
	b.profiles = dir
	b.ungated = resourcesOf(open, ungatedName)
	b.floor = startFloor(t, running.Redis)
	b.demoWorkspaces[b.ungated.url] = open.Demo.Workspaces.Main.ID
	return b
}

// enter returns a bench of one stack, whose owner is signed in.
func enter(t *testing.T, running *stack.Stack) *bench {
	t.Helper()
	return benchOf(t, running, accountOf(running, ourselves), resourcesOf(running, ourselves)).signIn(t)
}

// benchOf returns a bench of targets of a stack, without any login.
func benchOf(t *testing.T, running *stack.Stack, account, lists target) *bench {
	t.Helper()
	p := harness.NewProduct(t, running, &harness.Secrets{})
	return &bench{
		product: p, connector: p.DemoConnector(), account: account, lists: lists,
		demoWorkspaces: map[string]string{lists.url: running.Demo.Workspaces.Main.ID},
		codes:          make(chan [2]string, maxCodes),
		openForms:      make(chan string, maxCodes+openers),
	}
}

func (b *bench) signIn(t *testing.T) *bench {
	t.Helper()
	b.owner = b.product.Person(t, b.product.Demo.Users.Owner).SignedIn(t)
	return b
}

// usual returns the loads that every comparison has: refreshes, introspections, and lists with both kinds of tokens.
func (b *bench) usual(t *testing.T) []load {
	t.Helper()
	tokens := b.connector.Connect(t, b.owner)
	return []load{
		{what: refreshing, at: b.account, worker: b.refresh(t)},
		{what: introspection, at: b.account, worker: b.introspect(tokens.AccessToken)},
		{what: listConnector, at: b.lists, worker: b.list(b.lists, tokens.AccessToken)},
		{what: listPAT, at: b.lists, worker: b.list(b.lists, b.product.Demo.Tokens.Owner)},
	}
}

func accountOf(s *stack.Stack, name string) target {
	return target{
		name, s.Authservers[0].URL, []int{s.Authservers[0].PID()}, []int{s.Postgres.PID()}, []int{s.Redis.PID()},
	}
}

func resourcesOf(s *stack.Stack, name string) target {
	return target{name, s.Resourceapi.URL, []int{s.Resourceapi.PID()}, []int{s.Postgres.PID()}, []int{s.Redis.PID()}}
}

// maxCodes is the maximum number of waiting codes. Each can be used once and for a minute.
const maxCodes = 1600

func codesAt(connections int) int { return min(maxCodes, 400+40*connections) }

// fill replaces the codes with new ones, created concurrently.
func (b *bench) fill(t testing.TB, connections int) {
	t.Helper()
	drain(b.codes)
	consents := make(chan struct{}, codesAt(connections))
	for range cap(consents) {
		consents <- struct{}{}
	}
	close(consents)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range consents {
				attempt := b.connector.Begin()
				b.codes <- [2]string{attempt.Code(t, b.owner), attempt.Verifier}
			}
		})
	}
	group.Wait()
}

func post(address string, form url.Values, header http.Header) *http.Request {
	// The arguments are constant, so NewRequest cannot fail.
	request, _ := http.NewRequest(http.MethodPost, address, strings.NewReader(form.Encode()))
	request.Header = header.Clone()
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return request
}

// token returns a request that posts a form to the token endpoint.
func (b *bench) token(at target, form url.Values) *http.Request {
	return post(at.url+harness.TokenPath, form, http.Header{})
}

// constant repeats one request.
func constant(make func() *http.Request) newWorker {
	return func(int) (makeRequest, takeBody) { return make, ignoreBody }
}

// refreshTokenIn returns the refresh token in a token response.
func refreshTokenIn(body []byte) string {
	var answer struct {
		RefreshToken string `json:"refresh_token"`
	}
	_ = json.Unmarshal(body, &answer) // the next request with "" is refused, which ends the run
	return answer.RefreshToken
}

// chains are the newest refresh tokens, by connection.
type chains struct{ held sync.Map }

// refresh makes each connection refresh its own grant repeatedly.
func (c *chains) refresh(connect func() string, request func(token string) *http.Request) newWorker {
	return func(connection int) (makeRequest, takeBody) {
		held, connected := c.held.Load(connection)
		if !connected {
			held = connect()
		}
		current := held.(string)
		return func() *http.Request { return request(current) }, func(body []byte) error {
			current = refreshTokenIn(body)
			c.held.Store(connection, current)
			return nil
		}
	}
}

func (b *bench) refresh(t *testing.T) newWorker {
	return b.chains.refresh(func() string { return b.connector.Connect(t, b.owner).RefreshToken },
		func(token string) *http.Request { return b.token(b.account, b.connector.RefreshForm(token)) })
}

// oncePer makes one request of each thing.
func oncePer[T any](things <-chan T, make func(T) *http.Request) newWorker {
	return func(int) (makeRequest, takeBody) {
		return func() *http.Request {
			select {
			case one := <-things:
				return make(one)
			default:
				return nil
			}
		}, ignoreBody
	}
}

func drain[T any](things <-chan T) {
	for len(things) > 0 {
		<-things
	}
}

// exchange exchanges the existing codes, each once.
func (b *bench) exchange() newWorker {
	return oncePer(b.codes, func(code [2]string) *http.Request {
		form := b.connector.Begin().CodeForm(code[0])
		form.Set("code_verifier", code[1])
		return b.token(b.account, form)
	})
}

// introspect introspects one access token repeatedly.
func (b *bench) introspect(token string) newWorker {
	service := b.product.DemoService()
	header := http.Header{"Authorization": {harness.Basic(service.ClientID, service.ClientSecret)}}
	return constant(func() *http.Request {
		return post(b.account.url+harness.IntrospectPath, url.Values{"token": {token}}, header)
	})
}

// list requests a page of programmes, which must be full.
func (b *bench) list(at target, token string) newWorker {
	return listOf(at, b.demoWorkspaces[at.url], token, "")
}

func (b *bench) loads(t *testing.T) []load {
	t.Helper()
	floor := b.connector.RefreshForm("x")
	loads := append(b.usual(t), load{what: codeExchange, at: b.account, worker: b.exchange(), before: b.fill},
		load{what: floorWork, at: b.floor, worker: constant(func() *http.Request { return b.token(b.floor, floor) })},
		load{what: listUngated, at: b.ungated, worker: b.list(b.ungated, "")})
	return append(append(loads, b.wrong(t)...), b.submissions(t))
}

// inTurn groups loads of the same kind, so that compared loads run at nearly the same time.
func inTurn(loads []load) []load {
	var out []load
	taken := map[int]bool{}
	for i, l := range loads {
		for j := i; j < len(loads); j++ {
			if !taken[j] && loads[j].what == l.what {
				taken[j] = true
				out = append(out, loads[j])
			}
		}
	}
	return out
}

// random returns text that matches no token.
func random() string { return rand.Text() + rand.Text() + uuid.NewString() }
