// Package gateway routes requests at the API's address to the services.
//
// It takes the place of a deployment's reverse proxy: one address in front of authserver and resourceapi (contract,
// section 1). It replaces the caller's claims about its address, so that the services may believe the gateway.
// Everything else passes unchanged: Host, path and query byte by byte.
package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/server"
)

// SourceAddress is the source of the gateway's own connections. It is a loopback address that no other program uses by
// accident, so a service can trust the gateway (ALMONER_TRUSTED_PROXIES) without trusting other callers from 127.0.0.1.
const SourceAddress = "127.0.0.2"

const (
	maxBody       = 16 << 20 // the services have narrower limits
	dialTimeout   = 2 * time.Second
	answerTimeout = 28 * time.Second // below the server's write timeout, so that a caller gets a response
	idleTimeout   = time.Second      // below ALMONER_NOTICE: no request uses a connection that a process closes
)

// New returns the gateway's handler. Every trace begins here. The processes of authserver and resourceapi, at least one
// of each, are used in turn; their addresses are like 127.0.0.1:8082.
func New(authservers, resourceapis []string, traces *server.Tracing, log *slog.Logger) http.Handler {
	transport := &http.Transport{
		DialContext: (&net.Dialer{
			Timeout: dialTimeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(SourceAddress)},
		}).DialContext,
		DisableCompression:    true, // bodies pass unchanged
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       idleTimeout,
		ResponseHeaderTimeout: answerTimeout,
	}
	account := proxy(newPool(traces.Client(transport), authservers), apierr.Flat, log)
	resource := proxy(newPool(traces.Client(transport), resourceapis), apierr.Nested, log)
	route := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &incoming{ReadCloser: http.MaxBytesReader(w, r.Body, maxBody)}
		r = r.WithContext(context.WithValue(r.Context(), incomingKey{}, body))
		r.Body = body
		if IsAccount(r.URL.EscapedPath()) { // the path as sent: the services accept no other spelling
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

// IsAccount reports whether a path belongs to authserver (contract, section 1).
func IsAccount(path string) bool {
	switch path {
	case "/v1/account", "/authorize", "/token", "/register", "/.well-known/jwks.json",
		"/mcp/.well-known/oauth-authorization-server", "/mcp/.well-known/openid-configuration":
		return true
	}
	return strings.HasPrefix(path, "/v1/account/") ||
		strings.HasPrefix(path, "/.well-known/oauth-authorization-server") ||
		strings.HasPrefix(path, "/.well-known/openid-configuration")
}

func proxy(processes *pool, shape apierr.Shape, log *slog.Logger) http.Handler {
	return &httputil.ReverseProxy{
		Transport: processes,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme = "http" // the pool sets the host
			p.Out.Host = p.In.Host
			p.Out.URL.RawQuery = p.In.URL.RawQuery // ReverseProxy drops what it cannot parse; the service decides
			removeClaims(p.Out.Header)
			p.SetXForwarded()
			// This server sends 100 Continue: a second one from the service would consume the headers set here.
			p.Out.Header.Del("Expect")
			p.Out.Header.Set(web.RequestIDHeader, web.RequestID(p.In.Context()))
		},
		ModifyResponse: func(response *http.Response) error {
			response.Header.Del(web.RequestIDHeader) // already set, to the same value
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { fail(w, r, shape, log, err) },
		ErrorLog:     slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// incoming is a caller's body, which records a read error: the error that the proxy reports does not say on which side
// it occurred.
type incoming struct {
	io.ReadCloser
	broken atomic.Bool
}

// Read reads from the body and records an error.
func (i *incoming) Read(p []byte) (int, error) {
	n, err := i.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		i.broken.Store(true)
	}
	return n, err
}

type incomingKey struct{}

func isBroken(r *http.Request) bool {
	body, ok := r.Context().Value(incomingKey{}).(*incoming)
	return ok && body.broken.Load()
}

// removeClaims removes a caller's claims about its address, its route and its trace.
func removeClaims(header http.Header) {
	for name := range header {
		if strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" || name == "X-Real-Ip" ||
			name == "Traceparent" || name == "Tracestate" {
			header.Del(name)
		}
	}
}

func fail(w http.ResponseWriter, r *http.Request, shape apierr.Shape, log *slog.Logger, err error) {
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		apierr.Write(w, shape, apierr.New(apierr.TooLarge, "The body is larger than 16 MiB."))
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the caller has disconnected
	case isBroken(r):
		apierr.Write(w, shape, apierr.New(apierr.Invalid, "The body is incomplete, or its chunks are malformed."))
	default:
		log.ErrorContext(r.Context(), "upstream unavailable", "path", r.URL.Path, "cause", err.Error())
		apierr.Write(w, shape,
			apierr.New(apierr.Unavailable, "The service is temporarily unavailable. Try again in a few seconds."))
	}
}

// A pool is the set of processes of one service, which alternate. A process that announces its end, by closing the
// connection after a response, or that accepts no connection is skipped for a while. So a process can be restarted
// without effect for callers.
type pool struct {
	transport http.RoundTripper
	members   []*member
	turn      atomic.Uint64
}

type member struct {
	address string
	back    atomic.Int64 // when the process gets requests again, in Unix nanoseconds
}

// skipFor exceeds the notice that a process of the local stack gives, within which it closes all connections.
const skipFor = 3 * time.Second

func newPool(transport http.RoundTripper, addresses []string) *pool {
	p := &pool{transport: transport}
	for _, address := range addresses {
		p.members = append(p.members, &member{address: address})
	}
	return p
}

// RoundTrip sends the request to the next process. If a connection fails, the process has received nothing, and another
// one gets the request.
func (p *pool) RoundTrip(request *http.Request) (*http.Response, error) {
	var err error
	for range p.members {
		m := p.next()
		var response *http.Response
		if response, err = p.transport.RoundTrip(m.addressed(request)); err == nil {
			if response.Close && request.ContentLength >= 0 { // the connection always ends after a chunked body
				m.skip()
			}
			return response, nil
		}
		if network, ok := errors.AsType[*net.OpError](err); !ok || network.Op != "dial" {
			return nil, err
		}
		m.skip()
	}
	return nil, err
}

// next returns the next process that is not skipped, or the next one if all are skipped.
func (p *pool) next() *member {
	turn, now := p.turn.Add(1)-1, time.Now().UnixNano()
	count := uint64(len(p.members))
	for i := range count {
		if m := p.members[(turn+i)%count]; m.back.Load() <= now {
			return m
		}
	}
	return p.members[turn%count]
}

func (m *member) skip() { m.back.Store(time.Now().Add(skipFor).UnixNano()) }

// addressed returns the request for this process. A transport closes the body even if the connection fails; the next
// process needs it.
func (m *member) addressed(request *http.Request) *http.Request {
	to := request.Clone(request.Context())
	to.URL.Host = m.address
	if request.Body != nil {
		to.Body = io.NopCloser(request.Body)
	}
	return to
}
