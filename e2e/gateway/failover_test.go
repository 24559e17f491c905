package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Not parallel: nobody else is here while processes end.
func TestOneProcessIsEnough(t *testing.T) {
	s := enter(t)
	s.atEach(t, "both are there", func(t *testing.T, f *front) { f.wantsAnswers(t, false) })

	s.stack.Authservers[1].Kill()
	s.atEach(t, "one has died", func(t *testing.T, f *front) {
		// Caddy needs a second to notice, and until then cannot send a body to the other, of which it has lost hold.
		f.wantsAnswers(t, f.name == "caddy")
	})
	must(t, s.stack.Authservers[1].Restart(t.Context()))
	s.atEach(t, "it is back", func(t *testing.T, f *front) { s.wantTurn(t, f, "authserver2.log") })

	// As at an upgrade: nobody notices, at no moment.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.stack.Authservers[0].Stop()
	}()
	s.atEach(t, "the other is told to end", func(t *testing.T, f *front) {
		for going := true; going; {
			select {
			case <-ended:
				going = false
			default:
			}
			f.wantsAnswers(t, false)
		}
	})

	// None is a 503 in the shape of the path, and what another service does goes on.
	s.stack.Authservers[1].Kill()
	s.atEach(t, "no authserver", func(t *testing.T, f *front) {
		p := s.product(t, f.transport())
		secret := "alm_rt_" + strings.Repeat("secretsecret", 4)
		met.NoteAll(secret)
		answer := p.API().
			With("Authorization", "Bearer "+secret).
			Form(t, harness.TokenPath+"?token="+secret, url.Values{"refresh_token": {secret}})
		answer.WantsRetryAfter(t).WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
		wantsCommon(t, harness.TokenPath, answer.Header)
		p.App().Get(t, "/login?code="+secret).Wants(t, http.StatusServiceUnavailable).WantsRetryAfter(t)
		p.API().Get(t, "/v1/docs").Wants(t, http.StatusOK)
	})
	must(t, s.stack.Authservers[0].Restart(t.Context()))
	must(t, s.stack.Authservers[1].Restart(t.Context()))
	s.stack.Resourceapi.Kill()
	s.atEach(t, "no resourceapi", func(t *testing.T, f *front) {
		s.product(t, f.transport()).
			API().
			Get(t, harness.ListPath).
			WantsRetryAfter(t).
			WantsNested(t, http.StatusServiceUnavailable, "UNAVAILABLE")
	})
	must(t, s.stack.Resourceapi.Restart(t.Context()))
	s.atEach(t, "all are back", func(t *testing.T, f *front) { f.wantsAnswers(t, f.name == "caddy") })
}

// backWithin is more than a gateway takes to notice what has become of a process: a second.
const backWithin = 30 * time.Second

// wantsAnswers asks each service ten times, with and without a body. If that takes a moment, it may be told to come
// back later until then.
func (f *front) wantsAnswers(t *testing.T, inAMoment bool) {
	t.Helper()
	transport := f.transport()
	defer transport.CloseIdleConnections()
	end := time.Now().Add(backWithin)
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
			var body io.Reader
			if c.method == http.MethodPost {
				body = strings.NewReader("grant_type=refresh_token")
			}
			request, err := http.NewRequestWithContext(t.Context(), c.method, c.address, body)
			must(t, err)
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			response, err := transport.RoundTrip(request)
			must(t, err)
			_, _ = io.Copy(io.Discard, response.Body)
			must(t, response.Body.Close())
			switch {
			case response.StatusCode == c.want:
			case inAMoment && response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != "" && time.Now().Before(end):
				round = -1 // from the beginning
				time.Sleep(50 * time.Millisecond)
			default:
				t.Fatalf("%s %s: %d, want %d", c.method, request.URL.Path, response.StatusCode, c.want)
			}
		}
	}
}

// wantTurn asks until a request has gone to the process with this log.
func (s *site) wantTurn(t *testing.T, f *front, log string) {
	t.Helper()
	transport := f.transport()
	defer transport.CloseIdleConnections()
	for end := time.Now().Add(backWithin); ; time.Sleep(50 * time.Millisecond) {
		id := plainly(t, f, transport, f.ports.baseURL()+"/v1/account/oauth/jwks").Header.Get("X-Request-Id")
		content, err := os.ReadFile(filepath.Join(s.stack.LogDir(), log))
		must(t, err)
		if strings.Contains(string(content), id) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no request went to the process of %s", log)
		}
	}
}

// atEach does something at both gateways, side by side, and waits for them.
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

// A breaking server takes requests and ends the connection without an answer. It stands for a process that dies at
// work: the product's own cannot be made to die so often. It counts what it has got.
type breaking struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string]int // method → requests
}

func newBreaking(t *testing.T) *breaking {
	t.Helper()
	b := &breaking{got: map[string]int{}}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		b.mu.Lock()
		b.got[r.Method]++
		b.mu.Unlock()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(b.Close)
	return b
}

// before starts gateways of the test's own before these processes, with further settings of Caddy's, and does something
// at each.
func before(t *testing.T, processes processes, do func(t *testing.T, f *front, base string), settings ...string) {
	t.Helper()
	ports, err := findPorts()
	must(t, err)
	fronts, err := startFronts(ports, processes, settings...)
	must(t, err)
	for _, f := range fronts {
		t.Run(f.name, func(t *testing.T) {
			f.skipIfMissing(t)
			do(t, f, ports.baseURL())
		})
		if f.run != nil {
			f.run.Kill()
		}
	}
}

// What was sent may have been done, so it is not sent again by anybody but the caller: a refresh token that is
// presented twice ends its grant.
func TestAPostIsSentOnce(t *testing.T) {
	t.Parallel()
	one, two := newBreaking(t), newBreaking(t)
	both := [2]string{hostOf(one.URL), hostOf(two.URL)}
	before(t, processes{both, both}, func(t *testing.T, f *front, base string) {
		client := &http.Client{Transport: f.transport()}
		defer client.CloseIdleConnections()
		for _, method := range []string{http.MethodPost, http.MethodPatch} {
			// which Go's client takes for a leave to send again
			for _, header := range []string{"", "Idempotency-Key"} {
				one.forget()
				two.forget()
				request, err := http.NewRequestWithContext(
					t.Context(),
					method,
					base+harness.TokenPath,
					strings.NewReader("grant_type=refresh_token"),
				)
				must(t, err)
				if header != "" {
					request.Header.Set(header, "7")
				}
				response, err := client.Do(request)
				must(t, err)
				body, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if response.StatusCode != http.StatusServiceUnavailable ||
					!strings.Contains(string(body), `"temporarily_unavailable"`) {
					t.Errorf("%s: %d %s", method, response.StatusCode, body)
				}
				if times := one.times(method) + two.times(method); times != 1 {
					t.Errorf("%s with %q was sent %d times", method, header, times)
				}
			}
		}
		response, err := client.Get(base + "/v1/account/oauth/jwks")
		must(t, err)
		must(t, response.Body.Close())
		if one.times(http.MethodGet) == 0 || two.times(http.MethodGet) == 0 {
			t.Errorf(
				"a GET was not tried at the other process: %d and %d times",
				one.times(http.MethodGet),
				two.times(http.MethodGet),
			)
		}
	})
}

// Between the end of one process and the moment when Caddy sees that another is back, a POST waits: nothing of it was
// sent.
func TestCaddy_PostWaitsForAProcess(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	var posts atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz" && !ready.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Method == http.MethodPost:
			posts.Add(1)
		}
	}))
	t.Cleanup(server.Close)
	both := [2]string{hostOf(server.URL), hostOf(server.URL)}
	before(t, processes{both, both}, func(t *testing.T, f *front, base string) {
		if f.name != "caddy" {
			t.Skip("nginx asks no process whether it is ready")
		}
		client := &http.Client{Transport: f.transport()}
		defer client.CloseIdleConnections()
		post := func() (status int, took time.Duration) {
			began := time.Now()
			response, err := client.Post(
				base+harness.TokenPath,
				"application/x-www-form-urlencoded",
				strings.NewReader("a=b"),
			)
			must(t, err)
			must(t, response.Body.Close())
			return response.StatusCode, time.Since(began)
		}
		// Caddy takes a process for ready until it has asked it.
		for end := time.Now().Add(backWithin); ; {
			status, took := post()
			if status == http.StatusServiceUnavailable {
				if took < time.Second {
					t.Fatalf("a POST waited %s for a process, want about 2s", took)
				}
				break
			}
			if time.Now().After(end) {
				t.Fatal("Caddy does not notice that no process is ready")
			}
		}
		sent := posts.Load()
		time.AfterFunc(200*time.Millisecond, func() { ready.Store(true) })
		status, took := post()
		for tries := 0; status != http.StatusOK && took > time.Second && tries < 5; tries++ { // the machine is busy
			status, took = post()
		}
		if status != http.StatusOK || posts.Load() != sent+1 {
			t.Errorf("status %d after %s, sent %d times", status, took, posts.Load()-sent)
		}
	})
}

func (b *breaking) times(method string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.got[method]
}

func (b *breaking) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.got)
}

// The MCP endpoint may answer by a stream of events (streamable HTTP). Ours does not as yet, so the server is one of
// the test's: it says the second word when the first has arrived.
func TestStreamsPassAsTheyCome(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	var late atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: one\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-arrived:
		case <-time.After(15 * time.Second):
			late.Store(true)
		}
		_, _ = io.WriteString(w, "data: two\n\n")
	}))
	t.Cleanup(server.Close)
	both := [2]string{hostOf(server.URL), hostOf(server.URL)}
	before(t, processes{both, both}, func(t *testing.T, f *front, base string) {
		late.Store(false)
		client := &http.Client{Transport: f.transport()}
		defer client.CloseIdleConnections()
		response, err := client.Post(base+"/mcp", "application/json", strings.NewReader("{}"))
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		word := make([]byte, len("data: one\n\n"))
		_, err = io.ReadFull(response.Body, word)
		must(t, err)
		arrived <- struct{}{}
		rest, err := io.ReadAll(response.Body)
		must(t, err)
		if string(word) != "data: one\n\n" || string(rest) != "data: two\n\n" || late.Load() {
			t.Errorf("%q, then %q; held back: %t", word, rest, late.Load())
		}
	})
}
