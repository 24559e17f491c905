package doctor

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const (
	userTimeout = 10 * time.Minute // for a user at a browser
	maxPasted   = 16 << 10         // bytes
)

// An attempt is one authorization request.
type attempt struct {
	refusal  *response // of the token endpoint, if that does not know the client
	state    string
	verifier credential.Secret
	address  string // of the request
	code     credential.Secret
}

// authorize sends the client's request and gets a code, if the user can consent.
func (r *run) authorize(ctx context.Context) {
	r.attempt = r.newAttempt()
	r.probeToken(ctx)
	r.probeAuthorize(ctx)
	switch {
	case r.Email != "":
		r.checkCallback(r.consent(ctx))
	case r.Browser:
		r.checkCallback(r.awaitBrowser(ctx))
	case r.Pasted != nil:
		r.checkCallback(r.readPasted(ctx))
	default:
		r.report.Stopped = "No user signed in. To continue, use --browser, --callback-stdin, or --email and " +
			"--password-file."
		panic(errStop)
	}
}

// newAttempt makes the request as the connectors send it: with a space before the scope, offline_access,
// prompt=consent, and an unknown parameter.
func (r *run) newAttempt() attempt {
	a := attempt{state: rand.Text(), verifier: credential.Secret(rand.Text() + rand.Text())}
	r.secrets.add(a.verifier)
	sum := sha256.Sum256([]byte(a.verifier.Reveal()))
	scopes, endpoint := strings.Fields(r.challenge["scope"]), r.server.text("authorization_endpoint")
	if len(scopes) == 0 {
		scopes = r.resource.list("scopes_supported")
	}
	query := url.Values{
		"response_type":         {"code"},
		"client_id":             {r.ClientID},
		"redirect_uri":          {r.redirect},
		"state":                 {a.state},
		"code_challenge":        {base64.RawURLEncoding.EncodeToString(sum[:])},
		"code_challenge_method": {"S256"},
		"resource":              {r.resource.text("resource")},
		"almoner_doctor":        {"1"},
	}
	if slices.Contains(r.server.list("scopes_supported"), "offline_access") {
		query.Set("scope", " "+strings.Join(slices.Concat(scopes, []string{"offline_access"}), " "))
		query.Set("prompt", "consent")
	} else if len(scopes) > 0 {
		query.Set("scope", strings.Join(scopes, " "))
	}
	a.address = endpoint + either(strings.Contains(endpoint, "?"), "&", "?") + query.Encode()
	return a
}

// probeToken sends a code that was never issued. Clients act on the error of the token endpoint, so it must
// be an OAuth error.
func (r *run) probeToken(ctx context.Context) {
	form := r.codeForm("almoner-doctor", strings.Repeat("almoner-doctor-", 4))
	resp := r.send(ctx, formRequest(r.server.text("token_endpoint"), "", form, tokenTimeout))
	resp.request.note = "an unknown code"
	code, text := resp.oauthError(), resp.errorText()
	if code == "invalid_client" && !resp.redirects() && !r.byDocument() {
		r.attempt.refusal = resp // the server may fetch a document at the first consent
		return
	}
	refused := resp.status == http.StatusBadRequest || resp.status == http.StatusUnauthorized
	r.findFirst(resp, []check{
		{resp.redirects(), "token_redirects", ""},
		{code == "", "token_no_oauth_error", ""},
		{!refused, "token_probe_status", text},
		{true, "token_probe_ok", text},
	})
}

// byDocument reports whether the client is known by its metadata document.
func (r *run) byDocument() bool { return strings.HasPrefix(r.ClientID, "https://") }

// probeAuthorize opens the request without a sign-in.
func (r *run) probeAuthorize(ctx context.Context) {
	resp := r.send(ctx, pageRequest(r.attempt.address, "not signed in", false))
	if refusal := r.attempt.refusal; refusal != nil {
		if r.knowsClient(resp) {
			r.stop("confidential_client", refusal, refusal.errorText())
		}
		r.find("token_unknown_client", refusal, refusal.errorText())
	}
	location, said := resp.header.Get("Location"), messageOf(resp)
	client, redirect := "client_id "+quote(r.ClientID), "redirect_uri "+quote(r.redirect)
	switch {
	case resp.redirects() && strings.HasPrefix(location, r.redirect):
		r.checkEarlyCallback(resp, location)
	case resp.status == http.StatusTemporaryRedirect || resp.status == http.StatusPermanentRedirect:
		r.find("authorize_307", resp)
	case resp.redirects():
		r.find("authorize_ok", resp)
	case resp.status == http.StatusOK:
		r.find("authorize_ok", resp, said)
	case r.byDocument() && resp.status >= 400:
		r.stop("document_not_taken", resp, said, client, redirect)
	case resp.status >= 500:
		r.stop("authorize_fails", resp, said)
	case r.profile.PortSetting != "" && r.RedirectURI == "" && r.attempt.refusal == nil:
		r.stop("port_not_registered", resp, said, "the setting is "+r.profile.PortSetting, redirect)
	default:
		r.stop("authorize_refused", resp, said, client, redirect)
	}
}

// knowsClient reports whether the authorization endpoint shows a sign-in page, or returns to the client. A redirect to
// a sign-in page says nothing about the client.
func (r *run) knowsClient(resp *response) bool {
	if resp.status != http.StatusOK {
		return strings.HasPrefix(resp.header.Get("Location"), r.redirect)
	}
	page, err := readPage(resp)
	return err == nil && asksPassword(formsOf(page))
}

// checkEarlyCallback ends the step for a response that returned to the client before the sign-in.
func (r *run) checkEarlyCallback(resp *response, location string) {
	parsed, err := url.Parse(location)
	if err != nil {
		r.stop("callback_unreadable", resp)
	}
	if code := parsed.Query().Get("code"); code != "" {
		r.secrets.add(credential.Secret(code))
		r.stop("code_without_consent", resp)
	}
	r.stopOnError("authorize_error", resp, parsed.Query())
}

// stopOnError records an error that was returned to the client.
func (r *run) stopOnError(code string, resp *response, query url.Values) {
	if query.Get("error") == "invalid_target" { // RFC 8707, section 2
		code = "other_resource"
	}
	r.stop(code, resp, query.Get("error")+": "+query.Get("error_description"))
}

// checkCallback checks the final address of the browser (RFC 6749, section 4.1.2; RFC 9207).
func (r *run) checkCallback(address string) {
	parsed, err := url.Parse(address)
	if err != nil {
		r.stop("callback_unreadable", nil)
	}
	query := parsed.Query()
	r.attempt.code = credential.Secret(query.Get("code"))
	r.secrets.add(r.attempt.code)
	if withoutQuery(address) != withoutQuery(r.redirect) {
		r.stop("callback_elsewhere", nil, r.secrets.address(address))
	}
	if len(query["code"]) > 1 || len(query["state"]) > 1 || len(query["iss"]) > 1 {
		r.find("callback_twice", nil)
	}
	iss, issuer := query.Get("iss"), r.server.text("issuer")
	r.findFirst(nil, []check{
		{iss == "" && r.server.has(sendsIss), "iss_missing", ""},
		{iss != "" && !r.server.has(sendsIss), "iss_not_advertised", ""},
		{iss != "" && iss != issuer, "iss_differs", difference(iss, issuer)},
	})
	switch {
	case query.Get("state") != r.attempt.state:
		r.stop("state_differs", nil)
	case query.Get("error") != "":
		r.stopOnError("callback_error", nil, query)
	case r.attempt.code == "":
		r.stop("callback_without_code", nil)
	}
	r.find("callback_ok", nil)
}

func withoutQuery(address string) string {
	before, _, _ := strings.Cut(address, "?")
	return before
}

// awaitBrowser waits on loopback for the browser to return.
func (r *run) awaitBrowser(ctx context.Context) string {
	callback, err := url.Parse(r.redirect)
	if err != nil {
		panic(errStop)
	}
	host := callback.Hostname()
	if host == "localhost" {
		host = "127.0.0.1" // browsers try it too
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, cmp.Or(callback.Port(), "80")))
	if err != nil {
		r.stop("cannot_listen", nil, callback.Host)
	}
	arrivals := make(chan string, 1)
	var first sync.Once
	posted := false // the browser also sent the consent page's form
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != callback.EscapedPath() && !(req.URL.Path == "/" && callback.Path == "") {
				http.NotFound(w, req)
				return
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(w, "The doctor received the response. You can close this page.\n")
			first.Do(func() {
				posted = req.Method == http.MethodPost
				arrivals <- withoutQuery(r.redirect) + "?" + req.URL.RawQuery
			})
		}),
	}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	r.Prompt("Open this address in a browser, sign in and consent:\n\n  " + r.attempt.address +
		"\n\nWaiting for the browser to return to " + r.redirect + " …")
	address := r.await(ctx, arrivals)
	if posted {
		r.find("approval_307", nil)
	}
	return address
}

// readPasted reads the final address of the browser from a user who pastes it.
func (r *run) readPasted(ctx context.Context) string {
	r.Prompt("Open this address in a browser, sign in and consent. The browser ends at an address that begins with\n" +
		r.redirect + " and may show an error there: paste that whole address here.\n\n  " +
		r.attempt.address + "\n")
	arrivals := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(r.Pasted, maxPasted)).ReadString('\n')
		if line = strings.TrimSpace(line); err != nil && line == "" {
			close(arrivals)
			return
		}
		arrivals <- line
	}()
	return r.await(ctx, arrivals)
}

// await waits for the browser to arrive, and returns the final address.
func (r *run) await(ctx context.Context, arrivals <-chan string) string {
	select {
	case address, ok := <-arrivals:
		if ok {
			return address
		}
	case <-time.After(userTimeout):
	case <-ctx.Done():
		panic(errStop)
	}
	r.stop("nobody_consented", nil)
	return ""
}
