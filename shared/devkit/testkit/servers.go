package testkit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Trips counts the round trips of a client to a store on all its connections, including logins. What is sent
// without waiting for a response, such as a batch, counts as one. Pings do not count: how many a service sends depends
// on how long the store takes to respond.
type Trips struct{ count atomic.Int64 }

// CountTrips puts a counting proxy in front of the server of a URL, and returns the URL of the proxy. The
// proxy ends with the test.
func CountTrips(t testing.TB, server string) (through string, trips *Trips) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil || u.Port() == "" {
		t.Fatal("the server's URL has no host and port") // it may contain a password, so it is not quoted
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	trips = &Trips{}
	go trips.accept(ctx, listener, u.Host)
	u.Host = listener.Addr().String()
	return u.String(), trips
}

// Of returns the number of round trips that do takes.
func (t *Trips) Of(do func()) int {
	before := t.count.Load()
	do()
	return int(t.count.Load() - before)
}

// accept relays the connections to a listener, which end with ctx, to the target.
func (t *Trips) accept(ctx context.Context, listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
		var answered atomic.Bool
		answered.Store(true)
		go relay(client, server, func(part []byte) {
			if !isPing(part) && answered.Swap(false) {
				t.count.Add(1)
			}
		})
		go relay(server, client, func([]byte) { answered.Store(true) })
	}
}

// isPing reports whether a client sent only the ping of pgx or of go-redis.
func isPing(part []byte) bool {
	sent := string(part)
	return sent == "Q\x00\x00\x00\x0c-- ping\x00" || sent == "*1\r\n$4\r\nping\r\n"
}

// relay copies data and calls seen first for each part, until one side ends; then it closes both.
func relay(from, to net.Conn, seen func(part []byte)) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			seen(buffer[:n])
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// A MetadataHost is a platform's website on this machine with TLS. It serves the metadata documents of clients that are
// not registered.
type MetadataHost struct {
	URL string // of the host, or of the folder on it that For made

	t        testing.TB
	server   *httptest.Server
	folder   string
	requests atomic.Int32

	mu      sync.Mutex
	answers map[string]http.HandlerFunc // by path within the folder
	status  int
	folders map[string]*MetadataHost
}

// NewMetadataHost starts a website without documents.
func NewMetadataHost(t testing.TB) *MetadataHost {
	t.Helper()
	m := &MetadataHost{t: t, answers: map[string]http.HandlerFunc{}, status: http.StatusOK}
	m.folders = map[string]*MetadataHost{}
	m.server = httptest.NewTLSServer(m)
	m.URL = m.server.URL
	t.Cleanup(m.server.Close)
	return m
}

// For returns a folder of the website for another test: it has documents, a number of requests and failures of its own.
func (m *MetadataHost) For(t testing.TB) *MetadataHost {
	folder := "/" + strings.ToLower(rand.Text())
	out := &MetadataHost{URL: m.server.URL + folder, t: t, server: m.server, folder: folder, status: http.StatusOK}
	out.answers = map[string]http.HandlerFunc{}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.folders[folder] = out
	return out
}

// Name returns the host name with its port.
func (m *MetadataHost) Name() string { return strings.TrimPrefix(m.server.URL, "https://") }

// PEM returns the certificate to trust, in the format of the setting.
func (m *MetadataHost) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.server.Certificate().Raw}))
}

// Requests returns how many requests the host has received.
func (m *MetadataHost) Requests() int { return int(m.requests.Load()) }

// Answer sets the handler of a path and returns the URL.
func (m *MetadataHost) Answer(path string, answer http.HandlerFunc) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[path] = answer
	return m.URL + path
}

// Put publishes or replaces an object and returns its URL.
func (m *MetadataHost) Put(path string, object map[string]any) string {
	m.t.Helper()
	body, err := json.Marshal(object)
	Must(m.t, err)
	return m.Answer(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
}

// Client publishes a valid document of a client with these redirect URIs and with changes, and returns its URL, which
// is the client id. A change to nil removes a member.
func (m *MetadataHost) Client(path string, changes map[string]any, redirects ...string) string {
	m.t.Helper()
	document := map[string]any{
		"client_id":                  m.URL + path,
		"client_name":                "Claude",
		"redirect_uris":              redirects,
		"token_endpoint_auth_method": "none",
		"grant_types":                []string{"authorization_code", "refresh_token"},
		"response_types":             []string{"code"},
	}
	for name, value := range changes {
		document[name] = value
		if value == nil {
			delete(document, name)
		}
	}
	return m.Put(path, document)
}

// Fail makes the host respond to every request with status. A status of 200 ends this.
func (m *MetadataHost) Fail(status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status = status
}

func (m *MetadataHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	folder, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	within := m.folders["/"+folder]
	status, answer := m.status, m.answers[strings.TrimPrefix(r.URL.Path, m.folder)]
	m.mu.Unlock()
	if within != nil {
		within.ServeHTTP(w, r)
		return
	}
	m.requests.Add(1)
	switch {
	case status != http.StatusOK:
		w.WriteHeader(status)
	case answer == nil:
		http.NotFound(w, r)
	default:
		answer(w, r)
	}
}
