package torture

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/credential"
)

// Strangers who mean no good. They speak HTTP by themselves, as the actors of the harness are too well-mannered.

// addressesOf are all that somebody can connect to: the gateway, and both services past it.
func addressesOf(t *testing.T, running *stack.Stack) []string {
	t.Helper()
	var addresses []string
	for _, text := range []string{running.BaseURL, running.Authservers[0].URL, running.Resourceapi.URL} {
		address, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, address.Host)
	}
	return addresses
}

// slowRequests are beginnings of requests: the rest of a header, and that of a body, come one byte a second.
func slowRequests() []string {
	return []string{
		"GET " + harness.ListPath + " HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
		"POST " + harness.TokenPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
			"application/x-www-form-urlencoded\r\nContent-Length: 4000\r\n\r\n",
		"",
	}
}

// trickle sends the beginning at once and then a byte a second, and returns how long it was let. 0 where it gave up
// itself.
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
		_, _ = io.Copy(io.Discard, connection) // until the other side, or we ourselves, end it
		close(cut)
	}()
	_, _ = io.WriteString(connection, beginning) // a connection that is cut already says so below
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-cut:
			return time.Since(began)
		case <-ctx.Done():
			if held := time.Since(began); held > cutWithin {
				return held
			}
			return 0
		case <-tick.C:
			_, _ = io.WriteString(connection, "G")
		}
	}
}

// endless is a body without end.
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

// floodsWithBodies sends one body without end after the other.
func floodsWithBodies(ctx context.Context, addresses []string) {
	for turn := 0; ctx.Err() == nil; turn++ {
		time.Sleep(betweenFloods)
		path := []string{harness.TokenPath, harness.ListPath, "/mcp"}[turn%3]
		_, _ = send(
			ctx,
			http.DefaultClient,
			"http://"+addresses[turn%len(addresses)]+path,
			"application/json",
			endless{ctx},
		)
	}
}

const (
	guessersAtOnce = 4

	refreshPrefix = "alm_rt_"
	refreshSize   = 84 // bytes; the last are the MAC
	macSize       = 32
)

// A guesser tries secrets of an application, and refresh tokens of a connector, as fast as it is answered. Nothing is
// wrong with the spelling of either, so that each costs what a right one costs until it is refused.
type guesser struct {
	address   string
	client    *http.Client
	app       harness.ConfidentialApp
	connector harness.Connector
	current   harness.Tokens // of the connector
	raw       []byte         // its refresh token, decoded: each guess is that with another MAC

	secrets, tokens atomic.Int64 // refused
}

func newGuesser(
	t *testing.T,
	base string,
	app harness.ConfidentialApp,
	connector harness.Connector,
	current harness.Tokens,
) *guesser {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: guessersAtOnce} // else each guess would use up a port
	t.Cleanup(transport.CloseIdleConnections)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimPrefix(current.RefreshToken, refreshPrefix))
	if err != nil || len(raw) != refreshSize {
		t.Fatalf("a refresh token is not spelled as the guesses are: %d bytes, %v", len(raw), err)
	}
	return &guesser{
		address:   base + harness.TokenPath,
		client:    &http.Client{Transport: transport},
		app:       app,
		connector: connector,
		current:   current,
		raw:       raw,
	}
}

// guess returns at the end of ctx, or when a guess was not refused as one.
func (g *guesser) guess(ctx context.Context, t *testing.T) {
	for turn := 0; ctx.Err() == nil; turn++ {
		form := g.connector.RefreshForm(g.withOtherMAC(turn)).Encode()
		secret, err := credential.ClientSecret.New(rand.Reader)
		if err != nil {
			t.Error(err)
			return
		}
		body := fmt.Sprintf(
			`{"client_id":%q,"client_secret":%q,"code":"guess","redirect_uri":%q}`,
			g.app.ClientID,
			secret.Reveal(),
			g.app.RedirectURI,
		)
		if !g.refused(ctx, t, "application/x-www-form-urlencoded", form, "invalid_grant", &g.tokens) ||
			!g.refused(ctx, t, "application/json", body, "invalid_client", &g.secrets) {
			return
		}
	}
}

// refused counts an answer that refuses, be it for the number of guesses. None at all, or that the server is busy, is
// no refusal and no fault.
func (g *guesser) refused(ctx context.Context, t *testing.T, contentType, body, code string, count *atomic.Int64) bool {
	status, said := send(ctx, g.client, g.address, contentType, strings.NewReader(body))
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusBadRequest && strings.Contains(said, code):
		count.Add(1)
	case status != 0 && status < http.StatusInternalServerError:
		t.Errorf("a guess is answered with %d, want %s:\n%s", status, code, harness.Redact(said))
		return false
	}
	return true
}

// withOtherMAC is the current refresh token, spelled as well, with one byte of its MAC changed.
func (g *guesser) withOtherMAC(turn int) string {
	raw := slices.Clone(g.raw)
	raw[len(raw)-1-turn%macSize] ^= byte(1 + turn/macSize%255)
	return refreshPrefix + base64.RawURLEncoding.EncodeToString(raw)
}

// wantsNothingFound checks that the guesses came, none of them right, and that they have cost nobody their access (G3).
func (g *guesser) wantsNothingFound(t *testing.T, during time.Duration) {
	t.Helper()
	for what, refused := range map[string]int64{"secrets": g.secrets.Load(), "tokens": g.tokens.Load()} {
		if least := guessesASecond * int64(during/time.Second); refused < least {
			t.Errorf("%d guessed %s were refused, want %d at least", refused, what, least)
		}
	}
	g.connector.WantsAlive(t, g.current)
}

// send returns the status and the body of the answer, or 0 where the request is cut off.
func send(
	ctx context.Context,
	client *http.Client,
	address, contentType string,
	body io.Reader,
) (status int, said string) {
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
