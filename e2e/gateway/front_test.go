package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/gateway"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

const (
	apiHost = "api.almoner.test"
	appHost = "app.almoner.test"

	toolsVariable = "ALMONER_TEST_TOOLS"
)

// ports are the ports of all gateways of a site.
type ports struct{ https, http int }

func (p ports) baseURL() string { return fmt.Sprintf("https://%s:%d", apiHost, p.https) }
func (p ports) appURL() string  { return fmt.Sprintf("https://%s:%d", appHost, p.https) }

func freePort(t testing.TB) int {
	t.Helper()
	port, err := localstore.FreePort()
	must(t, err)
	return port
}

func findPorts(t testing.TB) ports { t.Helper(); return ports{freePort(t), freePort(t)} }

// processes are the addresses of the services' processes.
type processes struct{ authserver, resourceapi [2]string }

func hostOf(address string) string { return strings.TrimPrefix(address, "http://") }

// A front is a running gateway.
type front struct {
	name    string
	address string // of the loopback interface
	ports   ports
	log     string
	trust   *x509.CertPool
	missing error // why the program is not installed, or nil

	run *child.Child
}

func (f *front) skipIfMissing(t *testing.T) {
	t.Helper()
	if f.missing != nil {
		t.Skipf("%v: type sudo apt-get install %s, then try again", f.missing, f.name)
	}
}

// startFronts starts both gateways in front of the processes, each on its own address, and returns when they respond.
// They end with this process. The settings are added to Caddy's environment; nginx has none.
func startFronts(t testing.TB, at ports, before processes, settings ...string) []*front {
	t.Helper()
	dir, err := localstore.ProcessDir("almoner-gateway-")
	must(t, err)
	must(t, os.Chmod(dir, 0o711)) // nginx's workers run as another user, who must be able to enter it
	trust := writeCertificate(t, dir)
	fronts := []*front{
		{name: "caddy", address: "127.0.0.11", ports: at, log: filepath.Join(dir, "caddy.log"), trust: trust},
		{name: "nginx", address: "127.0.0.12", ports: at, log: filepath.Join(dir, "nginx.log"), trust: trust},
	}
	for i, spec := range []func(testing.TB, *front, string, processes) child.Spec{caddy, nginx} {
		f := fronts[i]
		program, err := gateway.Find(f.name, os.Getenv(toolsVariable))
		if err != nil {
			f.missing = err
			continue
		}
		s := spec(t, f, dir, before)
		s.Name, s.Path, s.Dir, s.Log = f.name, program.Path, dir, f.log
		s.Env = slices.Concat(s.Env, settings, program.Environment, []string{"PATH=/usr/bin:/bin", "HOME=" + dir})
		s.OnParentDeath = syscall.SIGTERM // otherwise nginx's workers would not end
		f.run, err = child.Start(s)
		must(t, err)
		f.waitReady(t)
	}
	return fronts
}

func caddy(t testing.TB, f *front, dir string, before processes) child.Spec {
	t.Helper()
	file := filepath.Join(dir, "Caddyfile")
	must(t, os.WriteFile(file, []byte(gateway.Caddyfile), 0o600))
	return child.Spec{
		Args: []string{"run", "--config", file, "--adapter", "caddyfile"},
		Env: []string{
			"GATEWAY_API_HOST=" + apiHost, "GATEWAY_APP_HOST=" + appHost,
			"GATEWAY_TLS=" + certificateFile(dir) + " " + keyFile(dir),
			fmt.Sprint("GATEWAY_HTTP_PORT=", f.ports.http), fmt.Sprint("GATEWAY_HTTPS_PORT=", f.ports.https),
			"GATEWAY_BIND=" + f.address, "GATEWAY_AUTHSERVERS=" + strings.Join(before.authserver[:], " "),
			"GATEWAY_RESOURCEAPIS=" + strings.Join(before.resourceapi[:], " "),
		},
	}
}

// nginx replaces in nginx.conf what deploy/docs/gateway.md says to change, and the paths that a normal user cannot
// write.
func nginx(t testing.TB, f *front, dir string, before processes) child.Spec {
	t.Helper()
	file := filepath.Join(dir, "nginx.conf")
	text := gateway.Nginx
	for _, change := range [][2]string{
		{"127.0.0.1:8181", before.authserver[0]}, {"127.0.0.1:8281", before.authserver[1]},
		{"127.0.0.1:8182", before.resourceapi[0]}, {"127.0.0.1:8282", before.resourceapi[1]},
		{"/etc/almoner/gateway/cert.pem", certificateFile(dir)}, {"/etc/almoner/gateway/key.pem", keyFile(dir)},
		{"api.example.org", apiHost}, {"app.example.org", appHost},
		{"listen 443", fmt.Sprintf("listen %s:%d", f.address, f.ports.https)},
		{"listen 80", fmt.Sprintf("listen %s:%d", f.address, f.ports.http)},
		// standard output is f.log
		{"/run/nginx.pid", filepath.Join(dir, "nginx.pid")}, {"/var/log/nginx/access.log", "/dev/stdout"},
		{"http {", "http {\n" + temporaryPaths(dir)},
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("nginx.conf does not contain %q", change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return child.Spec{Args: []string{"-c", file, "-e", "stderr", "-g", "daemon off;"}}
}

func temporaryPaths(dir string) string {
	var lines strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		_, _ = fmt.Fprintf(&lines, "%s_temp_path %s;\n", kind, filepath.Join(dir, kind)) // never returns an error
	}
	return lines.String()
}

func (f *front) waitReady(t testing.TB) {
	t.Helper()
	client := &http.Client{Transport: f.newTransport(), Timeout: await.Long}
	defer client.CloseIdleConnections()
	await.True(t, f.name+" is ready", func() bool {
		select {
		case <-f.run.Done():
			t.Fatal(f.run.Outcome())
		default:
		}
		response, err := client.Get(f.ports.baseURL() + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return true
	})
}

// dial returns a function that connects to this gateway for any host name, from an address of the loopback interface,
// or from any if it is "".
func (f *front) dial(from string) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: await.Long}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return dialer.DialContext(ctx, network, net.JoinHostPort(f.address, port))
	}
}

func (f *front) newTransport() *http.Transport {
	return &http.Transport{
		DialContext: f.dial(""), TLSClientConfig: &tls.Config{RootCAs: f.trust, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 32,
	}
}

// transport returns a transport that connects to this gateway with HTTP/2, until the test ends.
func (f *front) transport(t *testing.T) *http.Transport {
	transport := f.newTransport()
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// oldTransport is like transport with HTTP/1.1, from an address, or from any if it is "".
func (f *front) oldTransport(t *testing.T, from string) *http.Transport {
	transport := f.transport(t)
	transport.ForceAttemptHTTP2 = false
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	transport.DialContext = f.dial(from)
	return transport
}

// ask sends a request and returns the response with its body.
func ask(
	t *testing.T, transport http.RoundTripper, method, address, body string, header http.Header,
) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	must(t, err)
	maps.Copy(request.Header, header)
	response, err := transport.RoundTrip(request)
	must(t, err)
	content, err := io.ReadAll(response.Body)
	must(t, errors.Join(err, response.Body.Close()))
	return response, string(content)
}

// product returns the product through this gateway.
func (s *site) product(t *testing.T, transport *http.Transport) *harness.Product {
	t.Helper()
	return harness.NewProductWithTransport(t, s.stack, &met, transport)
}

// raw opens a TLS connection for raw HTTP/1.1.
func (f *front) raw(t *testing.T, host string) (net.Conn, error) {
	t.Helper()
	plain, err := f.dial("")(t.Context(), "tcp", fmt.Sprint(host, ":", f.ports.https))
	if err != nil {
		return nil, err
	}
	config := f.newTransport().TLSClientConfig
	config.ServerName, config.NextProtos = host, []string{"http/1.1"}
	return tls.Client(plain, config), nil
}

// sendRaw sends text unchanged on a new connection for a host, and returns the responses.
func (f *front) sendRaw(t *testing.T, host, text string) []*http.Response {
	t.Helper()
	connection, err := f.raw(t, host)
	if err != nil {
		t.Error(err)
		return nil
	}
	return harness.SendRaw(connection, text)
}

func certificateFile(dir string) string { return filepath.Join(dir, "cert.pem") }
func keyFile(dir string) string         { return filepath.Join(dir, "key.pem") }

// writeCertificate creates a certificate for both hosts and returns the pool that trusts it.
func writeCertificate(t testing.TB, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{apiHost, appHost}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	certificate, err := x509.ParseCertificate(signed)
	must(t, err)
	must(t, writePEM(keyFile(dir), "PRIVATE KEY", private))
	must(t, writePEM(certificateFile(dir), "CERTIFICATE", signed))
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return pool
}

func writePEM(path, kind string, content []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}
