// Package gateway answers: which service does a request to the API's address belong to?
//
// It stands where a deployment has its reverse proxy: one address before authserver and resourceapi (contract,
// section 1). What a caller claims about its own address is thrown away and said anew, so the services may believe
// the gateway; everything else passes as it came: Host, path and query byte by byte.
package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/tracing"
	"github.com/almonerhq/almoner/shared/web"
)

// SourceAddress is where the gateway's own connections come from. It is a loopback address that no other program uses
// by accident, so a service can trust the gateway (ALMONER_TRUSTED_PROXIES) without trusting whoever else calls it
// from 127.0.0.1.
const SourceAddress = "127.0.0.2"

const (
	maxBody       = 16 << 20 // the services have narrower limits of their own
	dialTimeout   = 2 * time.Second
	answerTimeout = 28 * time.Second // below the write timeout of the server, so that a caller gets an answer
	idleTimeout   = 30 * time.Second // below that of the services, so that no request meets a connection just closed
)

// Backends are the services' addresses, like http://127.0.0.1:8082.
type Backends struct {
	Account  []*url.URL // authserver processes, taken in turn; at least one
	Resource []*url.URL // resourceapi processes, likewise
}

// New returns the gateway's handler. Every trace begins here.
func New(backends Backends, traces *tracing.Tracing, log *slog.Logger) http.Handler {
	transport := &http.Transport{
		DialContext: (&net.Dialer{
			Timeout: dialTimeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(SourceAddress)},
		}).DialContext,
		DisableCompression:    true, // bodies pass as they are
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       idleTimeout,
		ResponseHeaderTimeout: answerTimeout,
	}
	account := proxy(newCrew(traces.Client(transport), backends.Account), apierr.Flat, log)
	resource := proxy(newCrew(traces.Client(transport), backends.Resource), apierr.Nested, log)
	route := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &incoming{ReadCloser: http.MaxBytesReader(w, r.Body, maxBody)}
		r = r.WithContext(context.WithValue(r.Context(), incomingKey{}, body))
		r.Body = body
		if IsAccount(r.URL.EscapedPath()) { // as it was sent, like the services: no other spelling is a path of theirs
			account.ServeHTTP(w, r)
			return
		}
		resource.ServeHTTP(w, r)
	})
	lastResort := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		apierr.Write(w, apierr.Nested, apierr.Of(errors.New("panic")))
	})
	return traces.Server(web.Observe(route, log, lastResort, traces.Watchers()...), nil)
}

// IsAccount says whether a path belongs to authserver (contract, section 1).
func IsAccount(path string) bool {
	switch path {
	case "/v1/account", "/authorize", "/token", "/register",
		"/mcp/.well-known/oauth-authorization-server", "/mcp/.well-known/openid-configuration":
		return true
	}
	return strings.HasPrefix(path, "/v1/account/") ||
		strings.HasPrefix(path, "/.well-known/oauth-authorization-server") ||
		strings.HasPrefix(path, "/.well-known/openid-configuration")
}

func proxy(processes *crew, shape apierr.Shape, log *slog.Logger) http.Handler {
	return &httputil.ReverseProxy{
		Transport: processes,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme = "http" // where to, the crew says
			p.Out.Host = p.In.Host
			p.Out.URL.RawQuery = p.In.URL.RawQuery // ReverseProxy drops what it cannot parse; the service decides
			forgetHearsay(p.Out.Header)
			p.SetXForwarded()
			p.Out.Header.Del(
				"Expect",
			) // it is this server that says 100: a second one from behind would take the headers set here with it
			p.Out.Header.Set(web.RequestIDHeader, web.RequestID(p.In.Context()))
		},
		ModifyResponse: func(response *http.Response) error {
			response.Header.Del(web.RequestIDHeader) // it is set already, to the same
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { fail(w, r, shape, log, err) },
		ErrorLog:     slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// incoming is a caller's body, which remembers that it could not be read: the error that the proxy reports does not say
// on which side something broke.
type incoming struct {
	io.ReadCloser
	broken atomic.Bool
}

// Read reads on.
func (b *incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.broken.Store(true)
	}
	return n, err
}

type incomingKey struct{}

func isBroken(r *http.Request) bool {
	body, ok := r.Context().Value(incomingKey{}).(*incoming)
	return ok && body.broken.Load()
}

// forgetHearsay removes what a caller says about where it comes from, how it got here and which trace it belongs to.
func forgetHearsay(header http.Header) {
	for name := range header {
		if strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" || name == "X-Real-Ip" ||
			name == "Traceparent" ||
			name == "Tracestate" {
			header.Del(name)
		}
	}
}

func fail(w http.ResponseWriter, r *http.Request, shape apierr.Shape, log *slog.Logger, err error) {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		apierr.Write(w, shape, apierr.New(apierr.TooLarge, "The body is larger than 16 MiB."))
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the caller has left
	case isBroken(r):
		apierr.Write(
			w,
			shape,
			apierr.New(apierr.Invalid, "The body cannot be read: it ends too soon, or its chunks are malformed."),
		)
	default:
		log.ErrorContext(r.Context(), "no answer from behind the gateway", "path", r.URL.Path, "cause", err.Error())
		apierr.Write(
			w,
			shape,
			apierr.New(apierr.Unavailable, "The service does not answer at the moment. Try again shortly."),
		)
	}
}
