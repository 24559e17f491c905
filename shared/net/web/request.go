package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
)

// RequestIDHeader carries the id of a request to the caller, and from the gateway to the services.
const RequestIDHeader = "X-Request-Id"

// Observe gives each request an id, logs its outcome, and responds to a panic with lastResort. It does not log query
// strings and headers, because they may contain codes and tokens. It uses the id that the caller sent only if that is a
// UUID. The logger must come from NewLogger, which adds the ids. Watchers observe each request.
func Observe(next http.Handler, log *slog.Logger, lastResort http.Handler, watchers ...Watcher) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(RequestIDHeader)
		if _, err := ParseID(id); err != nil {
			id = uuid.NewString()
		}
		w.Header().Set(RequestIDHeader, id)
		known := &request{id: id}
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, known))
		for _, watcher := range watchers {
			watcher.Begins(r)
		}
		recorder := &statusRecorder{ResponseWriter: w, leaving: leavingOf(r.Context())}
		began := time.Now()
		defer func() {
			took := time.Since(began)
			defer func() {
				for _, watcher := range watchers {
					watcher.Ends(r, Outcome{Route: known.route, Status: recorder.status, Took: took})
				}
			}()
			if cause := recover(); cause != nil {
				if cause == http.ErrAbortHandler {
					panic(cause)
				}
				log.ErrorContext(r.Context(), "panic", "path", r.URL.Path, "cause", cause,
					"stack", string(debug.Stack()))
				if recorder.status == 0 {
					lastResort.ServeHTTP(recorder, r)
				}
			}
			level := slog.LevelInfo
			if recorder.status >= 500 {
				level = slog.LevelError
			}
			log.LogAttrs(r.Context(), level, "request", append([]slog.Attr{
				slog.String("method", r.Method),
				slog.String("path", r.URL.Path),
				slog.Int("status", recorder.status),
				slog.Int64("bytes", recorder.bytes),
				slog.Int64("ms", took.Milliseconds()),
			}, known.about()...)...)
		}()
		next.ServeHTTP(recorder, r)
		if recorder.status == 0 {
			recorder.begin(http.StatusOK) // the default of net/http for a handler that writes nothing
		}
	})
}

// A Watcher is called when a request begins and when it ends, whatever the outcome.
type Watcher interface {
	Begins(r *http.Request)
	Ends(r *http.Request, outcome Outcome)
}

// An Outcome is the outcome of a request.
type Outcome struct {
	Route  string // the pattern of the router; "" if none matched
	Status int    // 0 if the connection was cut without a response
	Took   time.Duration
}

type statusRecorder struct {
	http.ResponseWriter
	leaving *atomic.Bool
	status  int
	bytes   int64
}

// begin records the status. If the server began to shut down during the request, the response closes its connection.
func (s *statusRecorder) begin(status int) {
	if s.status != 0 {
		return
	}
	s.status = status
	if s.leaving != nil && s.leaving.Load() {
		s.Header().Set("Connection", "close")
	}
}

func (s *statusRecorder) WriteHeader(status int) {
	s.begin(status)
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusRecorder) Write(p []byte) (int, error) {
	s.begin(http.StatusOK)
	n, err := s.ResponseWriter.Write(p)
	s.bytes += int64(n)
	return n, err
}

// Unwrap is used by http.ResponseController.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Method returns the method of a request if it is a known one, or "other", so that callers cannot invent
// labels or names.
func Method(name string) string {
	switch name {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodOptions,
		http.MethodPut:
		return name
	}
	return "other"
}

// A request holds what is known of the request of a context.
type request struct {
	id    string
	grant atomic.Pointer[uuid.UUID]
	route string

	caller  atomic.Pointer[Caller]
	address netip.Addr
	tally   Tally // without Caller
}

// A Caller identifies the caller of a request by ids, for the access log and the counter of requests. None of them is a
// secret. Unknown ids are zero.
type Caller struct {
	Credential uuid.UUID // the grant or the personal access token
	Workspace  uuid.UUID
	User       uuid.UUID
	Client     uuid.UUID
	Personal   bool      // Credential is a personal access token
	Service    uuid.UUID // the client that asks about Credential (RFC 7662), if the request is not Credential's own
}

// RecordCaller records the caller of the request of ctx. Zero fields keep the earlier values. Call it once the
// credential is authenticated.
func RecordCaller(ctx context.Context, c Caller) {
	r := requestOf(ctx)
	if r == nil {
		return
	}
	if before := r.caller.Load(); before != nil {
		c.Credential = cmp.Or(c.Credential, before.Credential)
		c.Workspace = cmp.Or(c.Workspace, before.Workspace)
		c.User = cmp.Or(c.User, before.User)
		c.Client = cmp.Or(c.Client, before.Client)
		c.Personal = c.Personal || before.Personal
		c.Service = cmp.Or(c.Service, before.Service)
	}
	r.caller.Store(&c)
}

// RecordAddress records the client address of each request to next, for the access log. Observe must wrap it.
func RecordAddress(next http.Handler, proxies Proxies) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if known := requestOf(r.Context()); known != nil {
			known.address = proxies.ClientAddress(r)
		}
		next.ServeHTTP(w, r)
	})
}

// ClientAddress returns the address of the client whose request ctx belongs to, or the zero Addr (RecordAddress).
func ClientAddress(ctx context.Context) netip.Addr {
	if r := requestOf(ctx); r != nil {
		return r.address
	}
	return netip.Addr{}
}

// about returns the attributes of the access log that identify the caller.
func (r *request) about() []slog.Attr {
	var all []slog.Attr
	if c := r.caller.Load(); c != nil {
		ids := [...]uuid.UUID{c.Credential, c.Workspace, c.User, c.Client}
		for i, name := range [len(ids)]string{"credential_id", "workspace_id", "user_id", "client_id"} {
			if ids[i] != uuid.Nil {
				all = append(all, slog.String(name, ids[i].String()))
			}
		}
	}
	if r.address.IsValid() {
		all = append(all, slog.String("remote_address", r.address.String()))
	}
	return all
}

type requestKey struct{}

func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// RequestID returns the id of the request that ctx belongs to, or "".
func RequestID(ctx context.Context) string {
	if r := requestOf(ctx); r != nil {
		return r.id
	}
	return ""
}

// RecordRoute records the pattern that the router matched for the request of ctx. The router calls it before
// the handler.
func RecordRoute(ctx context.Context, pattern string) {
	if r := requestOf(ctx); r != nil {
		r.route = pattern
	}
}

// RecordGrant records the grant of the request of ctx, for every later log line of the request. Call it once
// the credential is authenticated, so that the id is never invented by a client.
func RecordGrant(ctx context.Context, grant uuid.UUID) {
	if r := requestOf(ctx); r != nil && grant != uuid.Nil {
		r.grant.Store(&grant)
	}
}

// NewLogger returns a logger that writes one JSON object per line. A line logged with the context of a
// request (the methods that end in Context) has request_id, and trace_id and grant_id once they are known.
func NewLogger(out io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(aboutRequests{slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level})})
}

// aboutRequests adds the ids of a request to lines logged with its context.
type aboutRequests struct{ slog.Handler }

// Handle implements slog.Handler.
func (a aboutRequests) Handle(ctx context.Context, line slog.Record) error {
	if r := requestOf(ctx); r != nil {
		line.AddAttrs(slog.String("request_id", r.id))
		if grant := r.grant.Load(); grant != nil && !names(line, grantID) {
			line.AddAttrs(slog.String(grantID, grant.String()))
		}
	}
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		line.AddAttrs(slog.String("trace_id", span.TraceID().String()))
	}
	return a.Handler.Handle(ctx, line)
}

const grantID = "grant_id"

// names reports whether a line already has the attribute: one request may end many grants, and an error of
// one of them names that grant.
func names(line slog.Record, attribute string) (found bool) {
	line.Attrs(func(one slog.Attr) bool {
		found = one.Key == attribute
		return !found
	})
	return found
}

// WithAttrs implements slog.Handler.
func (a aboutRequests) WithAttrs(attributes []slog.Attr) slog.Handler {
	return aboutRequests{a.Handler.WithAttrs(attributes)}
}

// WithGroup implements slog.Handler.
func (a aboutRequests) WithGroup(name string) slog.Handler {
	return aboutRequests{a.Handler.WithGroup(name)}
}

// Proxies are the address ranges whose X-Forwarded-For is trusted. If empty, none is (contract, section 7).
type Proxies []netip.Prefix

// ParseProxies parses address ranges in CIDR notation or single addresses, separated by commas.
func ParseProxies(text string) (Proxies, error) {
	var out Proxies
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			address, err := netip.ParseAddr(part)
			if err != nil {
				return nil, fmt.Errorf("%q is neither an address nor a range like 10.0.0.0/8", part)
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

func (p Proxies) trust(address netip.Addr) bool {
	return slices.ContainsFunc(p, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// Trusted reports whether the connection of the request comes from a trusted proxy.
func (p Proxies) Trusted(r *http.Request) bool {
	connection, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && p.trust(connection.Addr().Unmap())
}

// ClientAddress returns the address of the caller: the address of the connection, or, if that is a trusted proxy, the
// nearest address in X-Forwarded-For that is not a trusted proxy. Addresses before an untrusted one are ignored.
func (p Proxies) ClientAddress(r *http.Request) netip.Addr {
	connection, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	address := connection.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && p.trust(address); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			return address
		}
		address = hop.Unmap()
	}
	return address
}

// Network returns the network that counts as one caller: a single IPv4 address, or the /64 of an IPv6
// address, which belongs to one caller (RFC 6177).
func Network(address netip.Addr) string {
	if address = address.Unmap(); address.Is6() {
		if prefix, err := address.WithZone("").Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return address.String()
}

// ParseID parses the identifier of a user, a workspace or another record: a UUID in the canonical form of 36
// characters, in upper or lower case (RFC 9562, section 4). google/uuid also accepts braces, URNs and bare hex. ParseID
// refuses them, because several forms of one identifier invite wrong comparisons.
func ParseID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, errors.New("not a UUID in its canonical form")
	}
	return id, nil
}
