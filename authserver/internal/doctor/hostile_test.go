package doctor_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/doctor"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// listen listens on a free port until the test ends, and returns the address of the API there.
func listen(t *testing.T) (listener net.Listener, api string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener, "http://" + listener.Addr().String() + "/mcp"
}

// speaks starts a server that sends the same to every client, or closes the connection.
func speaks(t *testing.T, say func(c net.Conn)) string {
	t.Helper()
	listener, api := listen(t)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = c.Read(make([]byte, 4096))
				say(c)
			}()
		}
	}()
	return api
}

func bytesOf(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = c.Write([]byte(text)) }
}

func closedPort(t *testing.T) string {
	t.Helper()
	listener, api := listen(t)
	_ = listener.Close()
	return api
}

func TestRun_NamesCauseOfMissingResponse(t *testing.T) {
	t.Parallel()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs the refused handshake
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := speaks(t, bytesOf("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"))
	for code, url := range map[string]string{ // the name is invalid, so no DNS query is sent
		"no_such_name":       "https://almoner..invalid/mcp",
		"connection_refused": closedPort(t),
		"unreachable":        "http://127.0.0.1:70000/mcp",
		"bad_certificate":    secure.URL + "/mcp",
		"no_tls":             strings.Replace(plain, "http:", "https:", 1),
		"broken_answer":      speaks(t, bytesOf("SSH-2.0-OpenSSH_9.9\r\n")),
	} {
		report := run(t, doctor.Options{URL: url, As: "generic"})
		if _, ok := found(report, code); !ok || report.Verdict != doctor.Fail {
			t.Errorf("%s at %s: %+v", code, url, report.Findings)
		}
	}
}

// D2: whatever a server sends, the run ends soon, without a panic, and with findings.
func TestD2_InvalidResponsesEndTheRun(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 50_000)
	for name, text := range map[string]string{
		"nothing":       "",
		"half a header": "HTTP/1.1 401",
		"no length": "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer " +
			"resource_metadata=\"\x1b]0;owned\x07http://127.0.0.1\"\r\n\r\n",
		"too short":        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 100\r\n\r\nx",
		"negative length":  "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"a long header":    "HTTP/1.1 401 Unauthorized\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"wrong gzip":       "HTTP/1.1 401 Unauthorized\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
		"a deep document":  "HTTP/1.1 401 Unauthorized\r\nContent-Length: " + fmt.Sprint(len(deep)) + "\r\n\r\n" + deep,
		"a strange status": "HTTP/1.1 999 \r\nContent-Length: 0\r\n\r\n",
		"only 100":         strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100),
		"itself, for ever": "HTTP/1.1 302 Found\r\nLocation: /mcp\r\nContent-Length: 0\r\n\r\n",
		"a wild challenge": "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer ,,, = \"\\\r\nContent-Length: " +
			"0\r\n\r\n",
		"a wild address": "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer " +
			"resource_metadata=\"http://[::1\"\r\nContent-Length: 0\r\n\r\n",
		"another host of 0": "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer " +
			"resource_metadata=\"http://0.0.0.0:1/\"\r\nContent-Length: 0\r\n\r\n",
	} {
		report := run(t, doctor.Options{URL: speaks(t, bytesOf(text)), As: "claude"})
		if report.Verdict != doctor.Fail {
			t.Errorf("%s: %s", name, codes(report))
		}
		for _, f := range report.Findings {
			if strings.ContainsAny(f.Got+f.Detail, "\x1b\x07\n\r") {
				t.Errorf("%s: control characters in %q", name, f.Got+f.Detail)
			}
		}
	}
}

// Documents, pages and responses with every JSON type in every place.
func TestD2_WrongTypesEverywhere(t *testing.T) {
	t.Parallel()
	for _, value := range []any{
		nil, 7, -1e300, true, "", "x", "http://", []any{}, []any{nil, 7}, map[string]any{"a": map[string]any{}},
	} {
		for _, path := range []string{resourceDoc, serverDoc, "/oauth/token", "/mcp", "/oauth/revoke"} {
			s := newSound(t, at(path, func(_ *sound, _ request, a answer) {
				edit(a, func(values map[string]any) {
					for name := range values {
						values[name] = value
					}
				})
			}))
			if report := run(t, s.unattended()); report.Verdict == doctor.OK && path != "/oauth/revoke" {
				t.Errorf("%s of %v: %s", path, value, codes(report))
			}
		}
	}
}

// A server that never responds, one that never ends, and one that sends slowly, each with the time limit of a
// document.
func TestD2_TimeAndSizeAreBounded(t *testing.T) {
	t.Parallel()
	endless := func(write func(c net.Conn) error) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n\r\n"))
			for write(c) == nil {
			}
		}
	}
	for name, one := range map[string]struct {
		say    func(net.Conn)
		code   string
		within time.Duration
	}{
		"silent": {func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, "too_slow", time.Second},
		"drips": {endless(func(c net.Conn) error {
			time.Sleep(20 * time.Millisecond)
			_, err := c.Write([]byte("}"))
			return err
		}), "too_slow", time.Second},
		"floods": {endless(func(c net.Conn) error { _, err := c.Write(make([]byte, 64<<10)); return err }), "too_large",
			await.Long},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := doctor.Options{URL: speaks(t, one.say), As: "claude", DiscoveryTimeout: one.within}
			wantFindings(t, name, run(t, o), one.code)
		})
	}
}

// D3: the password is sent only to pages of the named server.
func TestD3_PasswordIsSentOnlyToNamedServer(t *testing.T) {
	t.Parallel()
	received := make(chan string, 10)
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		received <- r.PostForm.Get("password")
		_, _ = io.WriteString(w,
			`<form method="post"><input type="email" name="email"><input type="password" name="password"></form>`)
	}))
	t.Cleanup(thief.Close)
	for name, broken := range map[string]breakage{
		"the form goes elsewhere": at("/oauth/authorize", func(_ *sound, _ request, a answer) {
			replace(a, 200, "text/html", `<form method="post" action="`+thief.URL+`/login">`+
				`<input type="email" name="email"><input type="password" name="password"></form>`)
		}),
		"the page redirects": at("/oauth/authorize", location(302, thief.URL)),
		"the issuer is elsewhere": func(s *sound, r request, a answer) {
			resources(set("authorization_servers", []string{thief.URL}))(s, r, a)
			everywhere(set("issuer", thief.URL))(s, r, a)
		},
		"a far page without TLS": everywhere(set("authorization_endpoint", "http://far.example.org/authorize")),
	} {
		if report := run(t, newSound(t, broken).unattended()); report.Verdict == doctor.OK {
			t.Errorf("%s: %s", name, codes(report))
		}
	}
	close(received)
	for got := range received {
		if got != "" {
			t.Error("the password was sent to another server")
		}
	}
}

// D4: the grant is revoked if the user cancels, and if the run fails half way.
func TestD4_GrantIsRevoked(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	for _, c := range []struct {
		ctx    context.Context
		broken breakage
	}{
		{canceled, func(*sound, request, answer) { cancel() }},
		{t.Context(), status(500)},
	} {
		s := newSound(t, at("/mcp", when(withToken, c.broken)))
		report, err := doctor.Run(c.ctx, s.unattended())
		testkit.Must(t, err)
		s.mu.Lock()
		if !s.ended || s.newest("access") == "" {
			t.Errorf("the grant was not revoked: %s", codes(report))
		}
		s.mu.Unlock()
	}
}

// A user at a browser: the callback arrives on loopback. If it is a POST, the server redirected the browser
// with 307.
func TestRun_BrowserReturnsToLoopback(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		s := newSound(t, nil)
		o := s.unattended()
		o.Email, o.Password, o.Browser = "", "", true
		o.RedirectURI = strings.Replace(closedPort(t), "/mcp", "/back", 1)
		o.Prompt = func(text string) { go s.sendBrowser(method, o.RedirectURI, text) }
		report := run(t, o)
		if _, posted := found(report, "approval_307"); posted != (method == http.MethodPost) || report.Stopped != "" {
			t.Error(codes(report))
		}
		wantFindings(t, method, report, "callback_ok")
	}
}

// sendBrowser consents to the request that the doctor prompts for.
func (s *sound) sendBrowser(method, to, prompt string) {
	s.mu.Lock()
	s.code = s.secret("code")
	code := s.code
	s.mu.Unlock()
	_, after, _ := strings.Cut(prompt, "state=")
	state, _, _ := strings.Cut(after, "\n")
	r, err := http.NewRequest(method, to+"?code="+code+"&state="+state+"&iss="+s.URL, nil)
	if err != nil {
		return
	}
	if response, err := http.DefaultClient.Do(r); err == nil {
		_ = response.Body.Close()
	}
}

func FuzzRun(f *testing.F) {
	f.Add([]byte(`{"issuer":"http://127.0.0.1"}`), `Bearer resource_metadata="x"`)
	f.Add([]byte("data: {\"id\":1}\n\n"), `Basic, Bearer a="\"`)
	f.Fuzz(func(t *testing.T, body []byte, challenge string) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", challenge)
			if r.URL.Path == "/mcp" {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = w.Write(body)
		}))
		defer server.Close()
		o := doctor.Options{URL: server.URL + "/mcp", As: "claude", ClientID: "x", Email: "ada@example.org"}
		o.Password = credential.Secret(password)
		_ = run(t, o)
	})
}
