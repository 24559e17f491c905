package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// That no request fails when a process is told to end, TestRestarts_FailNoRequest shows.
func TestFailover_OneProcessIsEnough(t *testing.T) {
	t.Parallel()
	s := enterAlone(t)
	s.atEach(t, "both are there", func(t *testing.T, f *front) { f.wantsAnswers(t, false) })

	s.stack.Authservers[1].Kill()
	s.atEach(t, "one has died", func(t *testing.T, f *front) {
		// Caddy needs up to a second to notice. Until then it cannot send a body, which it has already read, to the
		// other process.
		f.wantsAnswers(t, f.name == "caddy")
	})
	must(t, s.stack.Authservers[1].Restart(t.Context()))
	s.atEach(t, "it is back", func(t *testing.T, f *front) { s.wantTurn(t, f, s.stack.Authservers[1]) })

	// Without a process the response is 503 in the shape of the path, and the other service is not affected.
	s.stack.Authservers[0].Kill()
	s.stack.Authservers[1].Kill()
	s.atEach(t, "no authserver", func(t *testing.T, f *front) {
		p := s.product(t, f.transport(t))
		secret := "alm_rt_" + strings.Repeat("secretsecret", 4)
		met.AddAll(secret)
		answer := p.API().With("Authorization", "Bearer "+secret).
			Form(t, harness.TokenPath+"?token="+secret, url.Values{"refresh_token": {secret}})
		answer.WantsRetryAfter(t).WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
		wantsCommon(t, harness.TokenPath, answer.Header)
		p.App().Get(t, "/login?code="+secret).Wants(t, http.StatusServiceUnavailable).WantsRetryAfter(t)
		p.API().Get(t, "/v1/docs").Wants(t, http.StatusOK)
	})
	must(t, s.stack.Authservers[0].Restart(t.Context()))
	must(t, s.stack.Authservers[1].Restart(t.Context()))
	for _, process := range s.stack.Resources {
		process.Kill()
	}
	s.atEach(t, "no resourceapi", func(t *testing.T, f *front) {
		s.product(t, f.transport(t)).API().Get(t, harness.ListPath).WantsRetryAfter(t).
			WantsNested(t, http.StatusServiceUnavailable, "UNAVAILABLE")
	})
	for _, process := range s.stack.Resources {
		must(t, process.Restart(t.Context()))
	}
	s.atEach(t, "all are back", func(t *testing.T, f *front) { f.wantsAnswers(t, f.name == "caddy") })
}

// wantsAnswers sends ten requests to each service, with and without a body. If inAMoment is set, 503 with Retry-After
// is allowed at first.
func (f *front) wantsAnswers(t *testing.T, inAMoment bool) {
	t.Helper()
	transport := f.transport(t)
	end := time.Now().Add(await.Long)
	for round := 0; round < 10; round++ {
		for _, c := range []struct {
			method, address string
			want            int
		}{
			{http.MethodGet, f.ports.baseURL() + "/v1/account/oauth/jwks", http.StatusOK},
			{http.MethodPost, f.ports.baseURL() + harness.TokenPath, http.StatusBadRequest},
			{http.MethodGet, f.ports.appURL() + "/login", http.StatusOK},
			{http.MethodGet, f.ports.baseURL() + harness.ListPath, http.StatusUnauthorized},
		} {
			body := map[string]string{http.MethodPost: "grant_type=refresh_token"}[c.method]
			response, _ := ask(t, transport, c.method, c.address, body, http.Header{"Content-Type": {formType}})
			switch {
			case response.StatusCode == c.want:
			case inAMoment && response.StatusCode == http.StatusServiceUnavailable &&
				response.Header.Get("Retry-After") != "" && time.Now().Before(end):
				round = -1 // start again
				time.Sleep(50 * time.Millisecond)
			default:
				t.Fatalf("%s %s: %d, want %d", c.method, c.address, response.StatusCode, c.want)
			}
		}
	}
}

// wantTurn sends requests until one is in the log of the process.
func (s *site) wantTurn(t *testing.T, f *front, process *stack.Service) {
	t.Helper()
	path := harness.ListPath
	if slices.Contains(s.stack.Authservers, process) {
		path = "/v1/account/oauth/jwks"
	}
	transport := f.transport(t)
	await.True(t, "a request is in "+process.Spec.Log, func() bool {
		id := plainly(t, transport, f.ports.baseURL()+path).Header.Get("X-Request-Id")
		content, err := os.ReadFile(process.Spec.Log)
		must(t, err)
		return strings.Contains(string(content), id)
	})
}

// atEach runs do for both gateways in parallel and waits for them.
func (s *site) atEach(t *testing.T, name string, do func(t *testing.T, f *front)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		for _, f := range s.fronts {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				f.skipIfMissing(t)
				do(t, f)
			})
		}
	})
}

// serving returns processes that are all one server of the test.
func serving(t *testing.T, handle http.HandlerFunc) processes {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	both := [2]string{hostOf(server.URL), hostOf(server.URL)}
	return processes{both, both}
}

// before starts gateways in front of these processes, with additional settings for Caddy, and runs do for each.
func before(t *testing.T, processes processes, do func(t *testing.T, f *front, base string), settings ...string) {
	t.Helper()
	ports := findPorts(t)
	for _, f := range startFronts(t, ports, processes, settings...) {
		t.Run(f.name, func(t *testing.T) {
			f.skipIfMissing(t)
			do(t, f, ports.baseURL())
		})
		if f.run != nil {
			f.run.Kill()
		}
	}
}

// A request that was sent may have been processed, so only the caller may retry it: a refresh token that is presented
// twice revokes its grant. The servers close the connection without a response, in place of processes that die during a
// request, because the product's processes cannot be killed so often.
func TestFailover_PostIsSentOnce(t *testing.T) {
	t.Parallel()
	var writes atomic.Int64
	var reads [2]atomic.Int64
	var addresses [2]string
	for i := range addresses {
		addresses[i] = serving(t, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			if r.Method == http.MethodGet {
				reads[i].Add(1)
			} else {
				writes.Add(1)
			}
			panic(http.ErrAbortHandler)
		}).authserver[0]
	}
	before(t, processes{addresses, addresses}, func(t *testing.T, f *front, base string) {
		transport := f.transport(t)
		for _, method := range []string{http.MethodPost, http.MethodPatch} {
			// Go may retry a request with an Idempotency-Key.
			for _, header := range []http.Header{nil, {"Idempotency-Key": {"7"}}} {
				response, body := ask(t, transport, method, base+harness.TokenPath, "grant_type=refresh_token", header)
				if response.StatusCode != http.StatusServiceUnavailable ||
					!strings.Contains(body, `"temporarily_unavailable"`) {
					t.Errorf("%s: %d %s", method, response.StatusCode, body)
				}
				if times := writes.Swap(0); times != 1 {
					t.Errorf("%s with %v was sent %d times", method, header, times)
				}
			}
		}
		ask(t, transport, http.MethodGet, base+"/v1/account/oauth/jwks", "", nil)
		if one, two := reads[0].Swap(0), reads[1].Swap(0); one == 0 || two == 0 {
			t.Errorf("a GET was not retried with the other process: %d and %d requests", one, two)
		}
	})
}

// A POST waits between the end of one process and the moment when Caddy sees that another is ready, because it was
// not sent yet.
func TestCaddy_PostWaitsForAProcess(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	var posts atomic.Int64
	upstream := serving(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz" && !ready.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Method == http.MethodPost:
			posts.Add(1)
		}
	})
	before(t, upstream, func(t *testing.T, f *front, base string) {
		if f.name != "caddy" {
			t.Skip("nginx does not check whether a process is ready")
		}
		transport := f.transport(t)
		post := func() (status int, took time.Duration) {
			began := time.Now()
			response, _ := ask(t, transport, http.MethodPost, base+harness.TokenPath, "a=b", nil)
			return response.StatusCode, time.Since(began)
		}
		// Caddy treats a process as ready until its first check.
		for end := time.Now().Add(await.Long); ; {
			status, took := post()
			if status == http.StatusServiceUnavailable {
				if took < time.Second {
					t.Fatalf("a POST waited %s for a process, want about 2s", took)
				}
				break
			}
			if time.Now().After(end) {
				t.Fatal("Caddy did not notice that no process is ready")
			}
		}
		sent := posts.Load()
		time.AfterFunc(200*time.Millisecond, func() { ready.Store(true) })
		status, took := post()
		if status != http.StatusOK { // a busy machine made Caddy's check late
			await.True(t, "Caddy sees the ready process", func() bool {
				status, took = post()
				return status == http.StatusOK || took < time.Second
			})
		}
		if status != http.StatusOK || posts.Load() != sent+1 {
			t.Errorf("status %d after %s, sent %d times", status, took, posts.Load()-sent)
		}
	})
}

// The MCP endpoint may respond with a stream of events (streamable HTTP). The product does not do so yet, so the test
// has its own server, which sends the second event after the first has arrived.
func TestStreaming_EventsAreNotBuffered(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	var late atomic.Bool
	upstream := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: one\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-arrived:
		case <-time.After(await.Long):
			late.Store(true)
		}
		_, _ = io.WriteString(w, "data: two\n\n")
	})
	before(t, upstream, func(t *testing.T, f *front, base string) {
		late.Store(false)
		client := &http.Client{Transport: f.transport(t)}
		response, err := client.Post(base+"/mcp", "application/json", strings.NewReader("{}"))
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		first := make([]byte, len("data: one\n\n"))
		_, err = io.ReadFull(response.Body, first)
		must(t, err)
		arrived <- struct{}{}
		rest, err := io.ReadAll(response.Body)
		must(t, err)
		if string(first) != "data: one\n\n" || string(rest) != "data: two\n\n" || late.Load() {
			t.Errorf("%q, then %q; second event late: %t", first, rest, late.Load())
		}
	})
}
