package torture

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
)

const (
	greedyTokens   = 32
	greedyWebsite  = "https://www.greedy.example"
	bombFields     = 12
	bombCharacters = 5000 // in each field: the maximum that is accepted
	importsPath    = harness.ListPath + "/imports"
)

// A greedyCaller has a workspace with many tokens. It connects to the services from the gateway's address, so its
// X-Forwarded-For header is believed.
type greedyCaller struct {
	p           *harness.Product
	ws          harness.TestWorkspace
	app         harness.ConfidentialApp
	tokens      []string
	client      *http.Client
	account     string // authserver
	resource    string // resourceapi
	addresses   []string
	submissions string // path of its form's submissions

	guesses atomic.Int64 // refused

	mu         sync.Mutex
	answers    map[int]int    // status → count in this round
	complaints map[string]int // what must not happen → how often it has
}

func newGreedyCaller(t *testing.T, p *harness.Product, running *stack.Stack) *greedyCaller {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(gateway.SourceAddress)}, Timeout: 5 * time.Second}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 256,
		DisableCompression:  true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	g := &greedyCaller{
		p: p, ws: p.NewWorkspace(t), account: running.Authservers[0].URL, resource: running.Resourceapi.URL,
		addresses: addressesOf(t, running),
		client:    &http.Client{Transport: transport, Timeout: 20 * time.Second},
	}
	g.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	g.app = g.ws.Confidential(t, "", harness.ReadProgrammes)
	for range greedyTokens {
		g.tokens = append(g.tokens, p.Database.Token(t, g.ws.Workspace, g.ws.Owner, harness.Everything()...))
	}
	g.fillProgrammes(t)
	g.fillForm(t)
	return g
}

// fillProgrammes creates so many programmes that a search for a text in none of them is expensive.
func (g *greedyCaller) fillProgrammes(t *testing.T) {
	t.Helper()
	g.p.Database.Exec(t, `insert into resource.programmes (id, tenant_id, name, summary, status, starts_on, created_at)
		select gen_random_uuid(), $1::uuid, 'Lunch club ' || n, 'A hot meal and company every Thursday.', 'active',
			current_date, now() - n * interval '1 second'
		from generate_series(1, $2::int) n`, g.ws.Workspace.ID, harness.Rounds(10_000, 200_000))
}

// fillForm creates a form with submissions whose answers grow sixfold when JSON is escaped for HTML.
func (g *greedyCaller) fillForm(t *testing.T) {
	t.Helper()
	var fields []client.Field
	answers := map[string]string{}
	for i := range bombFields {
		name := fmt.Sprint("field", i)
		fields = append(fields, client.Field{Name: name, Label: name, Type: "textarea"})
		answers[name] = strings.Repeat("<", bombCharacters)
	}
	forms := g.p.Client(t, g.ws.Workspace, harness.Bearer(g.ws.Token)).Forms
	form, err := forms.Create(t.Context(),
		client.NewForm{Title: "Volunteer", AllowedOrigins: []string{greedyWebsite}, Fields: fields})
	must(t, err)
	g.submissions = "/v1/engage/forms/" + form.ID + "/submissions"
	g.p.Database.Exec(t, `insert into resource.submissions
			(id, tenant_id, form_id, token_id, answers, consents, trapped, created_at, finished_at, status)
		select gen_random_uuid(), $1::uuid, $2::uuid, gen_random_uuid(), $3::jsonb, '[]', false, at, at, 'rejected'
		from generate_series(1, $4::int) n, lateral (select now() - n * interval '1 second') as moments (at)`,
		g.ws.Workspace.ID, form.ID, answers, harness.Rounds(80, 205))
}

func (g *greedyCaller) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers, g.complaints = map[int]int{}, map[string]int{}
}

// outcomes returns the number of responses by status; 0 means no response.
func (g *greedyCaller) outcomes() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(g.answers)) {
		parts = append(parts, fmt.Sprintf("%d × %d", g.answers[status], status))
	}
	return strings.Join(parts, ", ")
}

func (g *greedyCaller) count(status int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.answers != nil {
		g.answers[status]++
	}
}

// complain records that something happened that must not.
func (g *greedyCaller) complain(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.complaints[what]++
}

// ask sends a request from a random address and returns the status. authorization may be "".
func (g *greedyCaller) ask(ctx context.Context, method, address, authorization, contentType, body string) int {
	return g.send(ctx, method, address, authorization, contentType, strings.NewReader(body))
}

func (g *greedyCaller) send(
	ctx context.Context, method, address, authorization, contentType string, body io.Reader,
) (status int) {
	request, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return 0
	}
	from := fmt.Sprintf("%d.%d.%d.%d", 11+rand.IntN(100), rand.IntN(256), rand.IntN(256), 1+rand.IntN(250))
	request.Header.Set("X-Forwarded-For", from)
	request.Header.Set("X-Tenant-Id", g.ws.Workspace.ID)
	for name, value := range map[string]string{"Authorization": authorization, "Content-Type": contentType} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	response, err := g.client.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			g.count(0)
		}
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	g.count(response.StatusCode)
	return response.StatusCode
}

// bearer returns one of the tokens as an Authorization header.
func (g *greedyCaller) bearer(i int) string { return "Bearer " + g.tokens[i%len(g.tokens)] }

// headerLines returns the first header lines of a hand-written request.
func (g *greedyCaller) headerLines(caller int) string {
	return "Host: localhost\r\nAuthorization: " + g.bearer(caller) + "\r\nX-Tenant-Id: " + g.ws.Workspace.ID + "\r\n"
}

// repeat makes each caller run do repeatedly until ctx ends, with a pause after each run.
func repeat(ctx context.Context, callers int, pause time.Duration, do func(caller int)) {
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				do(caller)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	all.Wait()
}

// An attack runs until ctx ends.
type attack struct {
	name string
	run  func(ctx context.Context, g *greedyCaller)
}

// headerBomb is F11: imports with a header line of commas.
var headerBomb = attack{"header bomb", func(ctx context.Context, g *greedyCaller) {
	body := strings.Repeat(",", 2_097_142) + "\nx\n"
	repeat(ctx, harness.Rounds(8, 40), time.Second, func(caller int) {
		g.ask(ctx, http.MethodPost, g.resource+importsPath, g.bearer(caller), "text/csv", body)
	})
}}

// escapeBomb is F12: pages of submissions that grow when they are escaped.
var escapeBomb = attack{"escape bomb", func(ctx context.Context, g *greedyCaller) {
	repeat(ctx, harness.Rounds(2, 16), 100*time.Millisecond, func(caller int) {
		g.ask(ctx, http.MethodGet, g.resource+g.submissions+"?limit=200", g.bearer(caller), "", "")
	})
}}

// searchBomb is F13: 64 concurrent searches for a text that is in no index and no programme.
var searchBomb = attack{"search bomb", func(ctx context.Context, g *greedyCaller) {
	repeat(ctx, harness.Rounds(8, 2*greedyTokens), 50*time.Millisecond, func(caller int) {
		g.ask(ctx, http.MethodGet, g.resource+harness.ListPath+"?limit=200&q=zq", g.bearer(caller), "", "")
	})
}}

// slowReaders is F14: connections that request the longest pages and do not read them.
var slowReaders = attack{"slow readers", func(ctx context.Context, g *greedyCaller) {
	address := strings.TrimPrefix(g.resource, "http://")
	repeat(ctx, 64, 100*time.Millisecond, func(caller int) {
		connection, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			g.count(0)
			return
		}
		defer func() { _ = connection.Close() }()
		if tcp, ok := connection.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(4 << 10)
		}
		_, _ = io.WriteString(connection, "GET "+g.submissions+"?limit=200 HTTP/1.1\r\n"+g.headerLines(caller)+"\r\n")
		status := make([]byte, len("HTTP/1.1 200"))
		_ = connection.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(connection, status); err == nil && strings.HasSuffix(string(status), "200") {
			g.count(http.StatusOK)
		} else {
			g.count(http.StatusTooManyRequests)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
	})
}}

// manySecrets is F3: a client that gets new secrets constantly, and callers that authenticate as it with a wrong one.
var manySecrets = attack{"many secrets", func(ctx context.Context, g *greedyCaller) {
	var both sync.WaitGroup
	both.Go(func() {
		for range 200 {
			g.ask(ctx, http.MethodPost, g.account+g.ws.Clients()+"/"+g.app.ClientID+"/secret", g.bearer(0), "", "")
		}
	})
	body := url.Values{"token": {"wrong"}}.Encode()
	wrong := harness.Basic(g.app.ClientID, g.app.ClientSecret[:len(g.app.ClientSecret)-1]+"?")
	repeat(ctx, 64, 50*time.Millisecond, func(int) {
		g.ask(ctx, http.MethodPost, g.account+harness.IntrospectPath, wrong, formType, body)
	})
	both.Wait()
}}

// wrongPasswords is F5: 120 a second, each from another address and for another account.
var wrongPasswords = attack{"wrong passwords", func(ctx context.Context, g *greedyCaller) {
	repeat(ctx, 1, time.Second/120, func(int) {
		email := fmt.Sprintf("ada.%d@example.org", rand.Int())
		form := url.Values{"email": {email}, "password": {"a wrong password"}}.Encode()
		go g.ask(ctx, http.MethodPost, g.account+"/login", "", formType, form)
	})
}}

// manyImports is F17: imports of many rows, as fast as they are accepted.
var manyImports = attack{"imports", func(ctx context.Context, g *greedyCaller) {
	body := "name\n" + strings.Repeat("Lunch club\n", 9_999)
	repeat(ctx, 40, 250*time.Millisecond, func(caller int) {
		g.ask(ctx, http.MethodPost, g.resource+importsPath, g.bearer(caller), "text/csv", body)
	})
}}
