package doctor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	userTimeout = 10 * time.Minute // for a user at a browser
	maxPasted   = 16 << 10         // bytes
)

// An arrival is the final address of the browser.
type arrival struct {
	address string
	posted  bool // the browser also sent the consent page's form
}

// await waits on loopback for the browser to return.
func (w *run) await(ctx context.Context) (string, error) {
	callback, err := url.Parse(w.redirect)
	if err != nil {
		return "", errStop
	}
	listener, err := listen(ctx, callback)
	if err != nil {
		w.find("cannot_listen", nil, callback.Host)
		return "", errStop
	}
	came := make(chan arrival, 1)
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if r.URL.Path != callback.EscapedPath() && !(r.URL.Path == "/" && callback.Path == "") {
				http.NotFound(out, r)
				return
			}
			out.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(out, "The doctor received the response. You can close this page.\n")
			before, _, _ := strings.Cut(w.redirect, "?")
			select {
			case came <- arrival{before + "?" + r.URL.RawQuery, r.Method == http.MethodPost}:
			default: // a second call changes nothing
			}
		}),
	}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	w.Prompt(
		"Open this address in a browser, sign in and consent:\n\n  " + w.attempt.address +
			"\n\nWaiting for the browser to return to " + w.redirect + " …",
	)
	return w.first(ctx, came)
}

// listen opens the port of a loopback callback. For localhost it uses the IPv4 address, which browsers also
// try.
func listen(ctx context.Context, callback *url.URL) (net.Listener, error) {
	port := callback.Port()
	if port == "" {
		port = "80"
	}
	var config net.ListenConfig
	host := callback.Hostname()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	return config.Listen(ctx, "tcp", net.JoinHostPort(host, port))
}

// readPasted reads the final address of the browser from a user who pastes it.
func (w *run) readPasted(ctx context.Context) (string, error) {
	w.Prompt(
		"Open this address in a browser, sign in and consent. The browser ends at an address that begins with\n" +
			w.redirect + " and may show an error there: paste that whole address here.\n\n  " +
			w.attempt.address + "\n",
	)
	came := make(chan arrival, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(w.Pasted, maxPasted)).ReadString('\n')
		if line = strings.TrimSpace(line); err != nil && line == "" {
			close(came)
			return
		}
		came <- arrival{address: line}
	}()
	return w.first(ctx, came)
}

func (w *run) first(ctx context.Context, came <-chan arrival) (string, error) {
	timer := time.NewTimer(userTimeout)
	defer timer.Stop()
	select {
	case one, ok := <-came:
		if ok && one.posted {
			w.find("approval_307", nil)
		}
		if ok {
			return one.address, nil
		}
	case <-timer.C:
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for consent: %w", ctx.Err())
	}
	w.find("nobody_consented", nil)
	return "", errStop
}
