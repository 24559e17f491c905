package doctor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const (
	maxBody    = 256 << 10 // bytes of one response, decompressed
	maxHeaders = 64 << 10  // bytes
)

// A request is what the doctor sends.
type request struct {
	method, url string
	note        string // describes the request if the address does not
	header      map[string]string
	body        string
	timeout     time.Duration          // for the whole response
	cookies     bool                   // as a browser does
	complete    func(body []byte) bool // ends the reading of a stream; nil to read to its end
}

// jsonRequest makes a request that sends JSON.
func jsonRequest(address, note, body string, timeout time.Duration) request {
	return request{
		method:  http.MethodPost,
		url:     address,
		note:    note,
		body:    body,
		timeout: timeout,
		header:  map[string]string{"Content-Type": "application/json", "Accept": "application/json"},
	}
}

// formRequest makes a request that sends a form.
func formRequest(address, note string, form url.Values, timeout time.Duration) request {
	req := jsonRequest(address, note, form.Encode(), timeout)
	req.header["Content-Type"] = "application/x-www-form-urlencoded"
	return req
}

// A response is what the server sent, as far as it was received.
type response struct {
	request request
	status  int // 0 for none
	header  http.Header
	body    []byte
	took    time.Duration
	tls     *tls.ConnectionState // nil without TLS
}

func (r *response) succeeded() bool { return r.status >= 200 && r.status < 300 }

func (r *response) redirects() bool { return r.status >= 300 && r.status < 400 }

func (r *response) isJSON() bool {
	kind, _, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// oauthError returns the OAuth error code of a response (RFC 6749, section 5.2), or "".
func (r *response) oauthError() string {
	values, _ := readObject(r.body)
	return values.text("error")
}

// errorText returns the error of a response, in the format of OAuth or of a resource server.
func (r *response) errorText() string {
	values, _ := readObject(r.body)
	code, text := values.text("error"), values.text("error_description")
	if nested, ok := values["error"].(map[string]any); ok { // the format of resource servers
		code, text = object(nested).text("code"), object(nested).text("message")
	}
	if code == "" || text == "" {
		return code + text
	}
	return code + ": " + text
}

// newClient returns a client of untrusted servers, which may be broken or hostile. So every response is bounded in time
// and size, and no redirect is followed (D2).
func newClient() *http.Client {
	jar, _ := cookiejar.New(nil) // its error is always nil
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			MaxResponseHeaderBytes: maxHeaders,
			TLSHandshakeTimeout:    10 * time.Second,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Jar:           jar,
	}
}

// Errors of do, in addition to those of the network.
var (
	errTooLarge = errors.New("the response is larger than 256 KiB")
	errTooSlow  = errors.New("the response took too long")
)

// do sends a request and reads the response. Its errors are errTooLarge, errTooSlow, the error of ctx, or an error of
// the network; with each of them the response contains what was received so far.
func (r *run) do(ctx context.Context, req request) (*response, error) {
	resp := &response{request: req, header: http.Header{}}
	bounded, cancel := context.WithTimeout(ctx, req.timeout)
	defer cancel()
	sent, err := http.NewRequestWithContext(bounded, req.method, req.url, strings.NewReader(req.body))
	if err != nil {
		return resp, fmt.Errorf("invalid address: %w", err)
	}
	sent.Header.Set("User-Agent", "almoner-doctor (as "+r.profile.Name+")")
	for name, value := range req.header {
		sent.Header.Set(name, value)
	}
	client := *r.client
	if !req.cookies {
		client.Jar = nil
	}
	began := time.Now()
	received, err := client.Do(sent)
	if err == nil {
		defer func() { _ = received.Body.Close() }()
		resp.status, resp.header, resp.tls = received.StatusCode, received.Header, received.TLS
		resp.body, err = readBody(received.Body, req.complete)
	}
	resp.took = time.Since(began)
	if bounded.Err() != nil && ctx.Err() == nil && err != nil {
		err = errTooSlow
	}
	return resp, err
}

// readBody reads until the end, or until the body is complete: a stream of events may never end.
func readBody(body io.Reader, complete func([]byte) bool) ([]byte, error) {
	var all bytes.Buffer
	chunk := make([]byte, 8<<10)
	for {
		n, err := body.Read(chunk)
		all.Write(chunk[:n])
		switch {
		case all.Len() > maxBody:
			return all.Bytes()[:maxBody], errTooLarge
		case errors.Is(err, io.EOF), complete != nil && n > 0 && complete(all.Bytes()):
			return all.Bytes(), nil
		case err != nil:
			return all.Bytes(), fmt.Errorf("the response ended early: %w", err)
		}
	}
}

// send sends a request, and ends the step if there is no response.
func (r *run) send(ctx context.Context, req request) *response {
	resp, ok := r.try(ctx, req)
	if !ok {
		panic(errStop)
	}
	return resp
}

// try sends a request, and records a finding if there is no response.
func (r *run) try(ctx context.Context, req request) (resp *response, ok bool) {
	resp, err := r.do(ctx, req)
	if err == nil {
		return resp, true
	}
	if code := codeOf(err); code != "" {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the address, whose query may be private
		}
		r.find(code, resp, err.Error())
	}
	return resp, false
}

// codeOf returns the code of the finding about an error of do, or "" if the run was cancelled.
func codeOf(err error) string {
	dial, ok := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, errTooLarge):
		return "too_large"
	case errors.Is(err, errTooSlow), errors.Is(err, syscall.ETIMEDOUT):
		return "too_slow"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ""
	case isA[*net.DNSError](err):
		return "no_such_name"
	case isA[*tls.CertificateVerificationError](err), isA[x509.UnknownAuthorityError](err),
		isA[x509.CertificateInvalidError](err), isA[x509.HostnameError](err):
		return "bad_certificate"
	case isA[tls.RecordHeaderError](err), isA[tls.AlertError](err), errors.Is(err, http.ErrSchemeMismatch):
		return "no_tls"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused"
	case ok && dial.Op == "dial":
		return "unreachable"
	}
	return "broken_answer"
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// challengePart matches a scheme, or a parameter and its value, at the beginning of a line.
var challengePart = regexp.MustCompile(`^[ \t,]*([^ \t,="]+)(?:[ \t]*(=)[ \t]*(?:"((?:\\.|[^"])*)"?|([^ \t,]*)))?`)

// escaped matches an escaped character of a quoted value (RFC 9110, section 5.6.4).
var escaped = regexp.MustCompile(`\\(.)`)

// bearerChallenge returns the parameters of the scheme Bearer in WWW-Authenticate, or nil if there is none. The names
// are in lower case (RFC 9110, section 11.6.1). It skips what it cannot parse.
func bearerChallenge(header http.Header) map[string]string {
	for _, line := range header.Values("WWW-Authenticate") {
		var parameters map[string]string
		for {
			part := challengePart.FindStringSubmatch(line)
			if part == nil || (part[2] == "" && parameters != nil) {
				break
			}
			switch {
			case part[2] == "" && strings.EqualFold(part[1], "bearer"):
				parameters = map[string]string{}
			case parameters != nil:
				parameters[strings.ToLower(part[1])] = escaped.ReplaceAllString(part[3], "$1") + part[4]
			}
			line = line[len(part[0]):]
		}
		if parameters != nil {
			return parameters
		}
	}
	return nil
}

const (
	redacted  = "[redacted]"
	minSecret = 4 // characters of a secret that is redacted: shorter ones would match by chance
)

// patterns match secrets that are always redacted: credentials of this product, JWTs, and the values of Bearer and
// Basic.
var patterns = []*regexp.Regexp{
	regexp.MustCompile(`alm_(?:pat|cs|ac|rt)_[A-Za-z0-9_.-]+`),
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`),
	regexp.MustCompile(`(?i)\b(?:bearer|basic) +[A-Za-z0-9._~+/-]{20,}=*`),
}

// secrets are the known secrets, longest first: one may be part of another.
type secrets []string

// add registers a secret, in plain and in URL-encoded form.
func (s *secrets) add(secret credential.Secret) {
	value := secret.Reveal()
	if len(value) < minSecret {
		return
	}
	for _, form := range []string{value, url.QueryEscape(value), url.PathEscape(value)} {
		if !slices.Contains(*s, form) {
			*s = append(*s, form)
		}
	}
	slices.SortFunc(*s, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
}

// show makes text safe to show: without secrets, on one line, without control characters, and with up to limit
// characters.
func (s secrets) show(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s.redact(text), ""))
	text = s.redact(strings.Join(strings.Fields(text), " ")) // again: removed characters may have split a secret
	if runes := []rune(text); len(runes) > limit {
		text = string(runes[:limit]) + "…"
	}
	return text
}

func (s secrets) redact(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	for _, pattern := range patterns {
		text = pattern.ReplaceAllString(text, redacted)
	}
	return text
}

// address returns an address without the values of its query, which may be codes and states.
func (s secrets) address(address string) string {
	before, query, has := strings.Cut(address, "?")
	if !has {
		return s.show(before, 300)
	}
	var names []string
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name+"=…")
	}
	return s.show(before+"?"+strings.Join(names, "&"), 300)
}

// origin returns scheme and host of an address, or "" if it has none.
func origin(u *url.URL) string {
	if u == nil || u.Host == "" {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// isHTTP reports whether an address is an absolute http or https URL.
func isHTTP(u *url.URL) bool { return u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") }

func isLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	address, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || (err == nil && address.Unmap().IsLoopback())
}

// isPrivate reports whether a host is an address that the internet cannot reach.
func isPrivate(host string) bool {
	address, err := netip.ParseAddr(host)
	address = address.Unmap()
	return isLoopback(host) ||
		(err == nil && (address.IsPrivate() || address.IsLinkLocalUnicast() || address.IsUnspecified()))
}

func (r *run) sent(req request) string {
	text := req.method + " " + r.secrets.address(req.url)
	if req.note != "" {
		text += " (" + req.note + ")"
	}
	return text
}

// got returns status, time, and the relevant headers. It never shows a body, which may be a token.
func (r *run) got(resp *response) string {
	if resp.status == 0 {
		return fmt.Sprintf("no response in %d ms", resp.took.Milliseconds())
	}
	text := fmt.Sprintf("%d in %d ms", resp.status, resp.took.Milliseconds())
	if kind := resp.header.Get("Content-Type"); kind != "" {
		text += ", " + r.secrets.show(kind, 80)
	}
	if location := resp.header.Get("Location"); location != "" {
		text += ", Location: " + r.secrets.address(location)
	}
	if challenge := resp.header.Get("WWW-Authenticate"); challenge != "" {
		text += ", WWW-Authenticate: " + r.secrets.show(challenge, 300)
	}
	return text
}

// An rpcResponse is a JSON-RPC response.
type rpcResponse struct {
	ID     any             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    float64 `json:"code"`
		Message string  `json:"message"`
	} `json:"error"`
}

// hasResponse returns a function that reports whether the data so far contains the response with an id.
func hasResponse(id int) func([]byte) bool {
	return func(body []byte) bool {
		if !bytes.HasSuffix(bytes.TrimRight(body, "\r\n "), []byte("}")) {
			return false // incomplete: do not parse everything again for each byte
		}
		_, ok := findRPC(body, id)
		return ok
	}
}

// findRPC finds a response in a body that is one JSON object or a stream of events (MCP, Streamable
// HTTP).
func findRPC(body []byte, id int) (rpcResponse, bool) {
	candidates := [][]byte{body}
	for line := range bytes.Lines(body) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && bytes.HasSuffix(line, []byte("\n")) {
			candidates = append(candidates, data)
		}
	}
	for _, one := range candidates {
		var r rpcResponse
		if json.Unmarshal(one, &r) == nil && r.ID == float64(id) {
			return r, true
		}
	}
	return rpcResponse{}, false
}
