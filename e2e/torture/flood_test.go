package torture

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

const (
	// cutWithin applies to a connection that sends one byte a second; the server's limit is 15 s.
	cutWithin      = 18 * time.Second
	goodAtMost     = 250 * time.Millisecond
	guessesASecond = 40 // minimum, of secrets and tokens
)

// TestFlood_LeavesOtherClientsWorking opens thousands of slow connections, sends endless bodies and guesses secrets and
// tokens while good clients work, with the memory limits of the systemd units. The good clients get their responses,
// the others are cut off, and no guess is accepted.
func TestFlood_LeavesOtherClientsWorking(t *testing.T) {
	onlyLong(t, "flood", "it is a measurement; TestServe_EndsSlowRequests of shared/net/web and "+
		"grant.TestG3_SupersededTokenRevokesGrantAndForgedDoesNot have its rules")
	seconds, slowConnections := harness.Rounds(5, 300), harness.Rounds(500, 2_000)
	lasts := time.Duration(seconds) * time.Second // slow connections are cut off after 15 s
	s := newGreedySite(t)
	s.honest.kinds = s.honest.kinds[:2] // refresh and list
	guessed := siteOf(t, s.greedy.p)
	current := guessed.connector.Connect(t, guessed.owner)
	harness.Record(t, "%d slow connections, endless bodies, %v wrong secrets and tokens refused in %s", slowConnections,
		harness.Deferred[int64](s.greedy.guesses.Load), lasts)
	if harness.Long() {
		s.round(t, "no attack", cutWithin)
		s.honest.judgeTimes(t, goodAtMost)
	}
	t.Log(s.round(t, "the flood", lasts, slowSenders(slowConnections), endlessBodies,
		guesses(t, guessed, current.RefreshToken)))
	if refused := s.greedy.guesses.Load(); refused < guessesASecond*int64(seconds) {
		t.Errorf("%d guesses were refused, want at least %d a second", refused, guessesASecond)
	}
	guessed.connector.WantsWorking(t, current) // the guesses revoked no grant (G3)
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

// slowSenders sends headers and bodies at one byte a second, to both services and through the gateway.
func slowSenders(connections int) attack {
	return attack{"slow senders", func(ctx context.Context, g *greedyCaller) {
		g.count(0)
		repeat(ctx, connections, 100*time.Millisecond, func(caller int) {
			beginnings := []string{
				"GET " + harness.ListPath + " HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
				"POST " + harness.TokenPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + formType +
					"\r\nContent-Length: 4000\r\n\r\n",
				"POST " + importsPath + " HTTP/1.1\r\n" + g.headerLines(caller) +
					"Content-Type: text/csv\r\nContent-Length: 2000000\r\n\r\nname\n",
				"",
			}
			beginning := beginnings[caller/len(g.addresses)%len(beginnings)]
			if trickle(ctx, g.addresses[caller%len(g.addresses)], beginning) > atMost(cutWithin) {
				g.complain("slow connections were held for more than " + cutWithin.String())
			}
		})
	}}
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
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// endlessBodies sends endless bodies one after the other.
var endlessBodies = attack{"endless bodies", func(ctx context.Context, g *greedyCaller) {
	repeat(ctx, 4, 50*time.Millisecond, func(int) {
		address := g.addresses[rand.IntN(len(g.addresses))]
		path := []string{harness.TokenPath, harness.ListPath, "/mcp"}[rand.IntN(3)]
		g.send(ctx, http.MethodPost, "http://"+address+path, "", "application/json", endless{})
	})
}}

const (
	refreshPrefix = "alm_rt_"
	refreshSize   = 102 // bytes; the MAC comes last
	macSize       = 32
)

// guesses guesses secrets of an application and refresh tokens of a connector: the current one with another MAC. The
// guesses are well-formed, so each costs as much as a valid one until it is refused.
func guesses(t *testing.T, of site, current string) attack {
	t.Helper()
	raw, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimPrefix(current, refreshPrefix))
	if err != nil || len(raw) != refreshSize {
		t.Fatalf("a refresh token has another format than the guesses: %d bytes, %v", len(raw), err)
	}
	return attack{"guesses", func(ctx context.Context, g *greedyCaller) {
		repeat(ctx, 4, 0, func(int) {
			forged := slices.Clone(raw)
			forged[refreshSize-1-rand.IntN(macSize)] ^= byte(1 + rand.IntN(255))
			token := refreshPrefix + base64.RawURLEncoding.EncodeToString(forged)
			g.guess(ctx, formType, of.connector.RefreshForm(token).Encode())
			secret, _ := credential.ClientSecret.New(cryptorand.Reader) // which never fails
			app := of.app
			app.ClientSecret = secret.Reveal()
			body, _ := json.Marshal(app.Body("guess")) // strings have a form in JSON
			g.guess(ctx, "application/json", string(body))
		})
	}}
}

// guess counts a refusal, including one by the rate limit. No response, or a busy server, counts neither as a refusal
// nor as a failure.
func (g *greedyCaller) guess(ctx context.Context, contentType, body string) {
	status := g.ask(ctx, http.MethodPost, g.account+harness.TokenPath, "", contentType, body)
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusBadRequest:
		g.guesses.Add(1)
	case status != 0 && status < http.StatusInternalServerError:
		g.complain(fmt.Sprintf("a guess got status %d", status))
	}
}
