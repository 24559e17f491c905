package torture

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

const (
	// cutWithin applies to a connection that sends one byte a second; the server's limit is 15 s.
	cutWithin       = 18 * time.Second
	goodAtMost      = 250 * time.Millisecond
	memoryAtMost    = 256 << 10 // KiB, of one service
	recoveredWithin = 5 * time.Second
	guessesASecond  = 20 // minimum, of secrets and of tokens each
)

// TestFlood_LeavesOtherClientsWorking opens thousands of slow connections, sends endless bodies and guesses secrets and
// tokens while good clients work. The good clients get their responses, the others are cut off, and no service exceeds
// its memory limit.
func TestFlood_LeavesOtherClientsWorking(t *testing.T) {
	onlyLong(t, "flood", "it is a measurement; TestServe_EndsSlowRequests of shared/net/web and "+
		"grant.TestG3_SupersededTokenRevokesGrantAndForgedDoesNot have its rules")
	seconds, slowConnections := harness.Rounds(5, 300), harness.Rounds(500, 2_000)
	lasts := time.Duration(seconds) * time.Second // slow connections are cut off after 15 s
	running := harness.Private(t, harness.Options{})
	of := newSite(t, running)
	good := newHonest(t, of.Product)
	good.kinds = []honestKind{
		{name: "refresh", want: http.StatusOK, ask: good.refresh},
		{name: "list", want: http.StatusOK, ask: good.get(harness.ListPath)},
	}
	stranger := newGuesser(t, of)
	harness.Record(t, "%d slow connections, endless bodies, %v wrong secrets and %v wrong tokens refused in %s",
		slowConnections, harness.Deferred[int](func() int { return int(stranger.secrets.Load()) }),
		harness.Deferred[int](func() int { return int(stranger.tokens.Load()) }), lasts)
	addresses := addressesOf(t, running)

	ctx := lasting(t, lasts, func() bool { return stranger.refusedEnough(lasts) })
	var strangers sync.WaitGroup
	var late atomic.Int64
	for i := range slowConnections {
		strangers.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond) // all connect within one or two seconds
			for ctx.Err() == nil {
				beginning := slowRequests()[i/len(addresses)%len(slowRequests())]
				if trickle(ctx, addresses[i%len(addresses)], beginning) > atMost(cutWithin) {
					late.Add(1)
				}
			}
		})
	}
	for range guessersAtOnce {
		strangers.Go(func() { stranger.guess(ctx, t) })
		strangers.Go(func() { floodsWithBodies(ctx, addresses) })
	}
	summary := good.work(ctx, t, "the flood")
	strangers.Wait()
	if late.Load() > 0 {
		t.Errorf("%d slow connections were held for more than %s", late.Load(), cutWithin)
	}
	good.wantRecovery(t)
	t.Log(summary)
	stranger.connector.WantsWorking(t, stranger.current) // the guesses revoked no grant (G3)
	for _, service := range append(slices.Clone(running.Authservers), running.Resourceapi) {
		memory := harness.ProcessStatus(t, service.PID(), "VmHWM:")
		t.Logf("%s used at most %d MiB", service.Name, memory>>10)
		if memory > memoryAtMost {
			t.Errorf("%s used %d MiB", service.Name, memory>>10)
		}
	}
}

// wantRecovery checks that requests succeed soon after a flood, and in the long form that they were fast during it.
func (h *honestUsers) wantRecovery(t *testing.T) {
	t.Helper()
	began := time.Now()
	for _, kind := range h.kinds {
		answer, err := kind.ask(t)
		must(t, err)
		answer.Wants(t, kind.want)
	}
	if took := time.Since(began); took > atMost(recoveredWithin) {
		t.Errorf("after the flood two responses took %s", took)
	}
	p99 := slowestOfAHundred(slices.Concat(slices.Collect(maps.Values(h.took))...))
	if harness.Long() && p99 > goodAtMost {
		t.Errorf("p99 of good requests is %s, want at most %s", p99, goodAtMost)
	}
}

// Malicious callers. They speak raw HTTP, since the harness's actors send only well-formed requests.

// addressesOf returns all addresses that a caller can connect to: the gateway, and both services directly.
func addressesOf(t *testing.T, running *stack.Stack) []string {
	t.Helper()
	var addresses []string
	for _, address := range []string{running.BaseURL, running.Authservers[0].URL, running.Resourceapi.URL} {
		addresses = append(addresses, hostOf(t, address))
	}
	return addresses
}

// lasting returns a context for attacks that last a time, and longer on a slow machine until they have done enough.
func lasting(t *testing.T, atLeast time.Duration, enough func() bool) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), atLeast+await.Long)
	go func() {
		defer stop()
		for began := time.Now(); ctx.Err() == nil && (time.Since(began) < atLeast || !enough()); {
			time.Sleep(50 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		if !enough() {
			t.Errorf("the attacks did not do enough within %s", atLeast+await.Long)
		}
	})
	return ctx
}

// slowRequests returns beginnings of requests whose remaining header or body follows at one byte a second.
func slowRequests() []string {
	return []string{
		"GET " + harness.ListPath + " HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
		"POST " + harness.TokenPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
			"application/x-www-form-urlencoded\r\nContent-Length: 4000\r\n\r\n",
		"",
	}
}

// trickle sends the beginning immediately and then one byte a second. It returns how long the server kept the
// connection, or 0 if trickle ended it.
func trickle(ctx context.Context, address, beginning string) time.Duration {
	connection, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		time.Sleep(100 * time.Millisecond)
		return 0
	}
	defer func() { _ = connection.Close() }()
	began := time.Now()
	cut := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, connection) // until either side closes the connection
		close(cut)
	}()
	_, _ = io.WriteString(connection, beginning) // a closed connection is detected below
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-cut:
			return time.Since(began)
		case <-ctx.Done():
			if held := time.Since(began); held > atMost(cutWithin) {
				return held
			}
			return 0
		case <-tick.C:
			_, _ = io.WriteString(connection, "G")
		}
	}
}

// endless is an endless body.
type endless struct{ ctx context.Context }

func (e endless) Read(p []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, io.ErrUnexpectedEOF
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

const betweenFloods = 50 * time.Millisecond

// floodsWithBodies sends endless bodies one after the other.
func floodsWithBodies(ctx context.Context, addresses []string) {
	for turn := 0; ctx.Err() == nil; turn++ {
		time.Sleep(betweenFloods)
		path := []string{harness.TokenPath, harness.ListPath, "/mcp"}[turn%3]
		_, _ = send(ctx, http.DefaultClient, "http://"+addresses[turn%len(addresses)]+path, "application/json",
			endless{ctx})
	}
}

const (
	guessersAtOnce = 4

	refreshPrefix = "alm_rt_"
	refreshSize   = 102 // bytes; the MAC comes last
	macSize       = 32
)

// A guesser guesses secrets of an application and refresh tokens of a connector as fast as it gets responses. Its
// guesses are well-formed, so each costs as much as a valid one until it is refused.
type guesser struct {
	site
	address string
	client  *http.Client
	current harness.Tokens // of the connector
	raw     []byte         // its refresh token, decoded; each guess has another MAC

	secrets, tokens atomic.Int64 // refused
}

func newGuesser(t *testing.T, of site) *guesser {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: guessersAtOnce} // otherwise each guess would use up a port
	t.Cleanup(transport.CloseIdleConnections)
	current := of.connector.Connect(t, of.owner)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimPrefix(current.RefreshToken, refreshPrefix))
	if err != nil || len(raw) != refreshSize {
		t.Fatalf("a refresh token has another format than the guesses: %d bytes, %v", len(raw), err)
	}
	client := &http.Client{Transport: transport}
	return &guesser{site: of, address: of.BaseURL + harness.TokenPath, client: client, current: current, raw: raw}
}

// guess returns when ctx ends or when a guess is not refused as a guess.
func (g *guesser) guess(ctx context.Context, t *testing.T) {
	for turn := 0; ctx.Err() == nil; turn++ {
		form := g.connector.RefreshForm(g.withOtherMAC(turn)).Encode()
		secret, err := credential.ClientSecret.New(rand.Reader)
		if err != nil {
			t.Error(err)
			return
		}
		body := fmt.Sprintf(`{"client_id":%q,"client_secret":%q,"code":"guess","redirect_uri":%q}`, g.app.ClientID,
			secret.Reveal(), g.app.RedirectURI)
		if !g.refused(ctx, t, "application/x-www-form-urlencoded", form, "invalid_grant", &g.tokens) ||
			!g.refused(ctx, t, "application/json", body, "invalid_client", &g.secrets) {
			return
		}
	}
}

// refused counts a refusal, including one by the rate limit. No response, or a busy server, counts neither as a refusal
// nor as a failure.
func (g *guesser) refused(ctx context.Context, t *testing.T, contentType, body, code string, count *atomic.Int64) bool {
	status, reply := send(ctx, g.client, g.address, contentType, strings.NewReader(body))
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusBadRequest && strings.Contains(reply, code):
		count.Add(1)
	case status != 0 && status < http.StatusInternalServerError:
		t.Errorf("a guess got status %d, want %s:\n%s", status, code, harness.Redact(reply))
		return false
	}
	return true
}

// withOtherMAC returns the current refresh token, equally well-formed, with one byte of its MAC changed.
func (g *guesser) withOtherMAC(turn int) string {
	raw := slices.Clone(g.raw)
	raw[len(raw)-1-turn%macSize] ^= byte(1 + turn/macSize%255)
	return refreshPrefix + base64.RawURLEncoding.EncodeToString(raw)
}

// refusedEnough reports whether enough guesses of each kind were made and refused for a flood of this duration.
func (g *guesser) refusedEnough(during time.Duration) bool {
	least := guessesASecond * int64(during/time.Second)
	return g.secrets.Load() >= least && g.tokens.Load() >= least
}

// send returns the status and the body of the response, or 0 if the request was cut off.
func send(
	ctx context.Context, client *http.Client, address, contentType string, body io.Reader,
) (status int, reply string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, body)
	if err != nil {
		return 0, ""
	}
	request.Header.Set("Content-Type", contentType)
	response, err := client.Do(request)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, string(text)
}
