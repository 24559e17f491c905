package torture

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
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
		"POST " + harness.TokenPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 4000\r\n\r\n",
		"",
	}
}

// trickle sends the beginning at once and then a byte a second, and returns how long it was let. 0 where it gave up itself.
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
		path := []string{harness.TokenPath, harness.ListPath, "/mcp"}[turn%3]
		send(ctx, "http://"+addresses[turn%len(addresses)]+path, "application/json", endless{ctx})
	}
}

// guesses tries secrets, and tokens that nobody has minted.
func guesses(ctx context.Context, base string, app harness.ConfidentialApp, connector harness.Connector) {
	for turn := 0; ctx.Err() == nil; turn++ {
		form := connector.RefreshForm(fmt.Sprintf("alm_rt_%064d", turn)).Encode()
		send(ctx, base+harness.TokenPath, "application/x-www-form-urlencoded", strings.NewReader(form))
		body := fmt.Sprintf(`{"client_id":%q,"client_secret":"guess-%d","code":"guess","redirect_uri":%q}`, app.ClientID, turn, app.RedirectURI)
		send(ctx, base+harness.TokenPath, "application/json", strings.NewReader(body))
	}
}

func send(ctx context.Context, address, contentType string, body io.Reader) {
	time.Sleep(betweenFloods)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, body)
	if err != nil {
		return
	}
	request.Header.Set("Content-Type", contentType)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return // cut off, as it should be
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
}
