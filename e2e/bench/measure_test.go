package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

var (
	measure = flag.Bool("measure", false, "measure, and write RESULTS.md")
	rounds  = flag.Int("rounds", 3, "rounds")
	each    = flag.Duration("each", 2*time.Second, "how long each load runs in a round")
)

func TestMain(m *testing.M) {
	if redis := os.Getenv(floorVariable); redis != "" {
		fmt.Fprintln(os.Stderr, serveFloor(redis))
		os.Exit(1)
	}
	flag.Parse()
	os.Exit(m.Run())
}

// codesAt is how many codes there are for a round at so many connections: each is good once, and for a minute.
func codesAt(connections int) int { return 40 + 10*connections }

func TestMeasure(t *testing.T) {
	if !*measure {
		t.Skip("make bench measures")
	}
	load, _ := os.ReadFile("/proc/loadavg") // "" where there is none
	b := newBench(t)
	results := map[key]*sample{}
	var order []key
	for round := range *rounds {
		for _, connections := range []int{1, 8, 32} {
			b.fill(t, codesAt(connections))
			for _, l := range b.loads(t) {
				got, err := l.run(connections, *each)
				if err != nil {
					t.Fatal(err)
				}
				k := key{l.what, l.at.name, connections}
				if round == 0 {
					results[k], order = &sample{}, append(order, k)
				}
				results[k].add(got)
			}
		}
	}
	text := table(order, results, string(load))
	fmt.Print(text)
	if err := os.WriteFile("RESULTS.md", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A bench is everything that is measured, running.
type bench struct {
	product        *harness.Product
	owner          *harness.Person
	connector      harness.Connector
	account, lists target
	ungated, floor target
	tenants        map[string]string // by the target's address: each stack has a demo of its own
	codes          chan [2]string    // a code and its verifier
}

// withoutGate takes the gate out of the list: the same handler and query, asked by anybody.
func withoutGate() []harness.Fault {
	return []harness.Fault{
		{File: "resourceapi/internal/gate/gate.go", Old: "plan, caller, err := g.admit(r, need, prepare)", New: `tenant, err := readTenant(r.Header)
		plan, caller := Plan{}, Caller{Tenant: tenant}
		if err == nil {
			plan, err = prepare(r, tenant)
		}`},
		{File: "resourceapi/internal/endpoint/programmes/read.go", Old: `if query.Filter.Search != "" {`, New: `if true {`},
	}
}

func newBench(t *testing.T) *bench {
	t.Helper()
	running := harness.Private(t, harness.Options{Durable: true})
	open := harness.Private(t, harness.Options{Durable: true, Binaries: harness.Broken(t, withoutGate()...)})
	b := &bench{product: harness.Enter(t, running, &harness.Secrets{}), codes: make(chan [2]string, codesAt(32))}
	b.owner = b.product.Person(t, b.product.Demo.Users.Owner).SignedIn(t)
	b.connector = b.product.DemoConnector()
	b.account = target{"Almoner", running.Authservers[0].URL, running.Authservers[0].PID()}
	b.lists = target{"Almoner", running.Resourceapi.URL, running.Resourceapi.PID()}
	b.ungated = target{"without the gate", open.Resourceapi.URL, open.Resourceapi.PID()}
	b.floor = startFloor(t, running.RedisURL)
	b.tenants = map[string]string{b.lists.url: running.Demo.Tenants.Main.ID, b.ungated.url: open.Demo.Tenants.Main.ID}
	return b
}

// fill makes codes until there are as many as wanted, all of them fresh.
func (b *bench) fill(t *testing.T, wanted int) {
	t.Helper()
	for len(b.codes) > 0 {
		<-b.codes
	}
	for range wanted {
		attempt := b.connector.Begin()
		b.codes <- [2]string{attempt.Code(t, b.owner), attempt.Verifier}
	}
}

func post(at target, form url.Values, header http.Header) *http.Request {
	request, _ := http.NewRequest(http.MethodPost, at.url+harness.TokenPath, strings.NewReader(form.Encode())) // a fixed method and URL
	request.Header = header.Clone()
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return request
}

// constant sends one request again and again.
func constant(make func() *http.Request) func() (func() *http.Request, func([]byte)) {
	return func() (func() *http.Request, func([]byte)) { return make, func([]byte) {} }
}

// refresh lets each connection refresh a grant of its own, over and over.
func (b *bench) refresh(t *testing.T) func() (func() *http.Request, func([]byte)) {
	return func() (func() *http.Request, func([]byte)) {
		current := b.connector.Connect(t, b.owner).RefreshToken
		return func() *http.Request { return post(b.account, b.connector.RefreshForm(current), http.Header{}) }, func(body []byte) {
			var answer struct {
				RefreshToken string `json:"refresh_token"`
			}
			if json.Unmarshal(body, &answer) == nil {
				current = answer.RefreshToken
			}
		}
	}
}

// exchange exchanges the codes that there are, each once.
func (b *bench) exchange() func() (func() *http.Request, func([]byte)) {
	var next sync.Mutex
	return func() (func() *http.Request, func([]byte)) {
		return func() *http.Request {
			next.Lock()
			defer next.Unlock()
			if len(b.codes) == 0 {
				return nil
			}
			code := <-b.codes
			form := b.connector.Begin().CodeForm(code[0])
			form.Set("code_verifier", code[1])
			return post(b.account, form, http.Header{})
		}, func([]byte) {}
	}
}

// loads are in the order in which they take turns. Codes go first, before they are too old.
func (b *bench) loads(t *testing.T) []load {
	t.Helper()
	tokens := b.connector.Connect(t, b.owner)
	service := b.product.DemoService()
	list := func(at target, token string) func() (func() *http.Request, func([]byte)) {
		return func() (func() *http.Request, func([]byte)) {
			return func() *http.Request {
					request, _ := http.NewRequest(http.MethodGet, at.url+harness.ListPath, nil) // likewise
					request.Header.Set("X-Tenant-Id", b.tenants[at.url])
					request.Header.Set("Authorization", "Bearer "+token)
					return request
				}, func(body []byte) {
					if !bytes.Contains(body, []byte(`"count":50,`)) {
						t.Errorf("%s does not answer with a full page", at.name)
					}
				}
		}
	}
	introspect := constant(func() *http.Request {
		request := post(b.account, url.Values{"token": {tokens.AccessToken}}, http.Header{"Authorization": {harness.Basic(service.ClientID, service.Secret)}})
		request.URL.Path = harness.IntrospectPath
		return request
	})
	garbage := b.connector.RefreshForm("alm_rt_" + strings.Repeat("x", 112))
	return []load{
		{"code exchange", b.account, b.exchange(), http.StatusOK},
		{"refresh", b.account, b.refresh(t), http.StatusOK},
		{"one script and one signature", b.floor, constant(func() *http.Request { return post(b.floor, b.connector.RefreshForm("x"), http.Header{}) }), http.StatusOK},
		{"introspection", b.account, introspect, http.StatusOK},
		{"garbage refused", b.account, constant(func() *http.Request { return post(b.account, garbage, http.Header{}) }), 0},
		{"list of 50, connector's token", b.lists, list(b.lists, tokens.AccessToken), http.StatusOK},
		{"list of 50, personal access token", b.lists, list(b.lists, b.product.Demo.Tokens.Owner), http.StatusOK},
		{"list of 50", b.ungated, list(b.ungated, ""), http.StatusOK},
	}
}

// A key names a row of the table.
type key struct {
	what, at    string
	connections int
}

func table(order []key, results map[key]*sample, load string) string {
	var out strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) } // a Builder does not fail
	line("# What `make bench` measured\n")
	line("%s, %d processors, %s, generator and stores included; %d rounds of %s each.\n", time.Now().UTC().Format(time.DateOnly),
		runtime.NumCPU(), runtime.Version(), *rounds, *each)
	if before, _ := strconv.ParseFloat(strings.Split(load, " ")[0], 64); before > 0.5 {
		line("**The machine was busy with other work** (load average %.1f before the start): what needs several processes suffers more from that than\nwhat needs one, so even the ratios are worse than on a quiet machine. Run it again there.\n", before)
	}
	line("Compare within this table alone. The floor runs one Redis script and signs one ES256 token; a list's floor is the same handler and query")
	line("without the gate. CPU is that of the serving process, in microseconds a request.\n")
	line("| connections | what | of | requests/s | of the floor | p50 ms | p99 ms | CPU |\n|---|---|---|---|---|---|---|---|")
	for _, k := range order {
		s := results[k]
		floor := results[key{"one script and one signature", "floor", k.connections}]
		if strings.HasPrefix(k.what, "list") {
			floor = results[key{"list of 50", "without the gate", k.connections}]
		}
		line("| %d | %s | %s | %.0f | %.2f | %.2f | %.2f | %.0f |", k.connections, k.what, k.at, s.perSecond(), s.perSecond()/floor.perSecond(),
			s.percentile(0.5).Seconds()*1e3, s.percentile(0.99).Seconds()*1e3, s.cpu.Seconds()*1e6/float64(max(1, s.requests)))
	}
	return out.String()
}
