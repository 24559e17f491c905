package clientmetadata

import (
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"code.dny.dev/ssrf"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A metadataHost is a TLS server on this machine that serves documents.
type metadataHost struct {
	*httptest.Server
	Host    string // with its port
	Roots   *x509.CertPool
	Fetches atomic.Int32
}

func newMetadataHost(t testing.TB, serve func(p *metadataHost, w http.ResponseWriter, r *http.Request)) *metadataHost {
	t.Helper()
	p := &metadataHost{Roots: x509.NewCertPool()}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Fetches.Add(1)
		serve(p, w, r)
	}))
	t.Cleanup(p.Close)
	p.Roots.AddCert(p.Certificate())
	p.Host = strings.TrimPrefix(p.URL, "https://")
	return p
}

func (p *metadataHost) port(t testing.TB) uint16 {
	t.Helper()
	_, text, err := net.SplitHostPort(p.Host)
	testkit.Must(t, err)
	port, err := strconv.ParseUint(text, 10, 16)
	testkit.Must(t, err)
	return uint16(port)
}

func (p *metadataHost) fetcher(t testing.TB) *fetcher {
	return newFetcher([]uint16{p.port(t)}, p.Roots)
}

func responds(body string) func(*metadataHost, http.ResponseWriter, *http.Request) {
	return func(_ *metadataHost, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = w.Write([]byte(body))
	}
}

func TestFetch_DialsOnlyPublicAddresses(t *testing.T) {
	t.Parallel()
	f := newFetcher([]uint16{443}, nil)
	for _, address := range []string{
		"https://127.0.0.1/x", "https://127.8.8.8/x", "https://[::1]/x", "https://[::ffff:127.0.0.1]/x",
		"https://[::ffff:10.0.0.1]/x", "https://0.0.0.0/x", "https://[::]/x", "https://10.1.2.3/x",
		"https://172.16.0.1/x", "https://192.168.1.1/x", "https://169.254.169.254/latest/meta-data",
		"https://100.64.0.1/x", "https://198.18.0.1/x", "https://224.0.0.1/x", "https://255.255.255.255/x",
		"https://[fc00::1]/x", "https://[fd12:3456::1]/x", "https://[fe80::1]/x", "https://[64:ff9b::7f00:1]/x",
		"https://[64:ff9b::a00:1]/x", "https://[64:ff9b:1::1]/x", "https://[2002:7f00:1::]/x", "https://[ff02::1]/x",
		// names that resolve to this machine: the address counts when it is dialled
		"https://[::127.0.0.1]/x", "https://localhost/x",
	} {
		started := time.Now()
		_, _, err := f.get(t.Context(), address, maxDocument)
		if !errors.Is(err, client.ErrUnreachable) || !errors.Is(err, ssrf.ErrProhibitedIP) {
			t.Errorf("%s: %v", address, err)
		}
		if time.Since(started) >= fetchTimeout {
			t.Errorf("%s: took %s", address, time.Since(started))
		}
	}
	if _, _, err := f.get(t.Context(), "https://127.0.0.1:22/x", maxDocument); !errors.Is(err, ssrf.ErrProhibitedPort) {
		t.Errorf("a port that is not allowed: %v", err)
	}
}

// In development, the loopback addresses are allowed too, and no other.
func TestFetch_DialsLoopbackOnlyInDevelopment(t *testing.T) {
	t.Parallel()
	p := newMetadataHost(t, responds(`{}`))
	f := newFetcher([]uint16{p.port(t)}, nil)
	if _, _, err := f.get(t.Context(), p.URL+"/doc", maxDocument); !errors.Is(err, ssrf.ErrProhibitedIP) ||
		p.Fetches.Load() != 0 {
		t.Errorf("%v, %d fetches", err, p.Fetches.Load())
	}
	if body, _, err := p.fetcher(t).get(t.Context(), p.URL+"/doc", maxDocument); err != nil || string(body) != "{}" {
		t.Errorf("in development: %q %v", body, err)
	}
	f = newFetcher([]uint16{443}, p.Roots)
	for _, host := range []string{"10.0.0.1", "169.254.169.254", "[fd00::1]", "192.168.0.1"} {
		if _, _, err := f.get(t.Context(), "https://"+host+"/x", maxDocument); !errors.Is(err, ssrf.ErrProhibitedIP) {
			t.Errorf("%s in development: %v", host, err)
		}
	}
}

func TestFetch_VerifiesCertificate(t *testing.T) {
	t.Parallel()
	p := newMetadataHost(t, responds(`{}`))
	other := x509.NewCertPool()
	_, _, err := newFetcher([]uint16{p.port(t)}, other).get(t.Context(), p.URL+"/doc", maxDocument)
	if !errors.Is(err, client.ErrUnreachable) || p.Fetches.Load() != 0 {
		t.Error(err)
	}
}

func TestFetch_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	p := newMetadataHost(t, func(p *metadataHost, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/there" {
			http.Redirect(w, r, "/there", http.StatusFound)
			return
		}
		responds(`{}`)(p, w, r)
	})
	_, _, err := p.fetcher(t).get(t.Context(), p.URL+"/here", maxDocument)
	if refused, _ := errors.AsType[*client.DocumentError](err); refused == nil || p.Fetches.Load() != 1 {
		t.Errorf("%v, %d fetches", err, p.Fetches.Load())
	}
}

func TestFetch_RefusesInvalidResponses(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	zipped := gzip.NewWriter(&bomb)
	_, _ = zipped.Write(make([]byte, 10<<20))
	_ = zipped.Close()
	const contentType = "Content-Type"
	cases := map[string]struct {
		status              int
		header, value, body string
		unreachable         bool // an older copy may be used
		answered            bool // the page can say what is wrong
	}{
		"JSON of another kind": {200, contentType, "application/oauth-client+json", "{}", false, false}, // is accepted
		"longer than 5 KB":     {200, contentType, "application/json", strings.Repeat(" ", 6<<10), false, true},
		"HTML":                 {200, contentType, "text/html", "{}", false, true},
		"no Content-Type":      {200, contentType, "", "{}", false, true},
		"gzip":                 {200, "Content-Encoding", "gzip", bomb.String(), false, true},
		"status 404":           {404, contentType, "", "", true, true},
		"status 204":           {204, contentType, "", "", true, true},
		"status 502":           {502, contentType, "", "", true, false},
		"status 429":           {429, contentType, "", "", true, false},
		"truncated":            {200, "Content-Length", "100", "{", true, false},
		"header too long":      {200, "X-Long", strings.Repeat("x", 64<<10), "", true, false},
	}
	p := newMetadataHost(t, func(_ *metadataHost, w http.ResponseWriter, r *http.Request) {
		c := cases[strings.TrimPrefix(r.URL.Path, "/")]
		w.Header().Set(contentType, "application/json")
		w.Header().Set(c.header, c.value)
		if c.value == "" {
			w.Header()[c.header] = nil
		}
		w.WriteHeader(c.status)
		_, _ = w.Write([]byte(c.body))
	})
	f := p.fetcher(t)
	for name, c := range cases {
		_, _, err := f.get(t.Context(), p.URL+"/"+url.PathEscape(name), maxDocument)
		refused, _ := errors.AsType[*client.DocumentError](err)
		if (err == nil) != (!c.unreachable && !c.answered) || errors.Is(err, client.ErrUnreachable) != c.unreachable ||
			(refused != nil) != c.answered {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFetch_SlowHostTimesOut(t *testing.T) {
	t.Parallel()
	var sent atomic.Int32
	p := newMetadataHost(t, func(_ *metadataHost, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for range 1000 { // frequent single bytes: no pause is long
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
			sent.Add(1)
			select {
			case <-r.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	f := p.fetcher(t)
	if f.within != fetchTimeout {
		t.Errorf("a fetch may take %s, want %s", f.within, fetchTimeout)
	}
	// On a busy machine the time may be over before the body begins.
	for f.within = 500 * time.Millisecond; sent.Load() < 2; f.within *= 2 {
		_, _, err := f.get(t.Context(), p.URL+"/doc", maxDocument)
		if !errors.Is(err, client.ErrUnreachable) || f.within > time.Minute {
			t.Fatalf("within %s: %v", f.within, err)
		}
	}
}

func TestLifeOf_FollowsCacheControlWithinLimits(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"":                               unspecifiedFor,
		"max-age=600":                    10 * time.Minute,
		"public, max-age=600":            10 * time.Minute,
		"Max-Age=600":                    10 * time.Minute,
		`max-age="600"`:                  10 * time.Minute,
		"max-age=600, s-maxage=120":      2 * time.Minute,
		"s-maxage=120, max-age=600":      2 * time.Minute,
		"max-age=1":                      shortestLife,
		"max-age=0":                      shortestLife,
		"no-store":                       shortestLife,
		"max-age=600, no-cache":          shortestLife,
		"max-age=31536000":               longestLife,
		"max-age=99999999999999999999":   unspecifiedFor,
		"max-age=-1":                     unspecifiedFor,
		"stale-while-revalidate=3000000": unspecifiedFor,
	} {
		if got := lifeOf(http.Header{"Cache-Control": {header}}); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"client_id":"https://a.example/x","redirect_uris":["https://a.example/cb"],"jwks":{"keys":[]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := parse(body)
		if err != nil {
			return
		}
		if c, err := d.Accept("https://a.example/x", ""); err == nil &&
			(c.Address != d.ClientID || len(c.Redirects) == 0 || d.Secret != nil) {
			t.Errorf("%s: %+v", body, c)
		}
	})
}
