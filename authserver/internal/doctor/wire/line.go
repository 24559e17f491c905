// Package wire sends the doctor's requests to untrusted servers and decides what of their responses may be
// shown.
//
// The server may be broken or hostile. So every response is bounded in time and size, no redirect is
// followed, and only text filtered by Secrets is shown. Only this package of the doctor opens connections.
//
// The caller is package doctor.
package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"time"
)

const (
	maxBody    = 256 << 10 // bytes of one response, decompressed
	maxHeaders = 64 << 10  // bytes
)

// A Request is a request to send.
type Request struct {
	Method, URL string
	Note        string // describes the request if the address does not
	Header      map[string]string
	Body        string
	Within      time.Duration // for the whole response
	Browsing    bool          // with cookies, like a browser
	Enough      func(body []byte) bool
}

// Form makes a request that sends a form.
func Form(address, body string, within time.Duration) Request {
	return Request{
		Method: http.MethodPost,
		URL:    address,
		Body:   body,
		Within: within,
		Header: map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
	}
}

// An Answer is a response.
type Answer struct {
	Request Request
	Status  int
	Header  http.Header
	Body    []byte
	Took    time.Duration
	TLS     *tls.ConnectionState // nil without TLS
}

// Errors of Send, in addition to those of the network.
var (
	ErrTooLarge = errors.New("the response is larger than 256 KiB")
	ErrTooLate  = errors.New("the response took too long")
)

// A Line sends requests. It is safe for concurrent use.
type Line struct {
	client *http.Client // with cookies
	plain  *http.Client
	agent  string
}

// NewLine makes a Line. agent is the User-Agent.
func NewLine(agent string) (*Line, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, fmt.Errorf("create cookie jar: %w", err)
	}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		MaxResponseHeaderBytes: maxHeaders,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Line{
		client: &http.Client{Transport: transport, CheckRedirect: stay, Jar: jar},
		plain:  &http.Client{Transport: transport, CheckRedirect: stay},
		agent:  agent,
	}, nil
}

// Close closes idle connections.
func (l *Line) Close() { l.plain.CloseIdleConnections() }

// Send sends a request and reads the response. Its errors are ErrTooLarge, ErrTooLate, the error of ctx, or
// an error of the network; with each of them the Answer contains what was received so far.
func (l *Line) Send(ctx context.Context, r Request) (Answer, error) {
	answer := Answer{Request: r, Header: http.Header{}}
	bounded, cancel := context.WithTimeout(ctx, r.Within)
	defer cancel()
	request, err := http.NewRequestWithContext(bounded, r.Method, r.URL, strings.NewReader(r.Body))
	if err != nil {
		return answer, fmt.Errorf("invalid address: %w", err)
	}
	request.Header.Set("User-Agent", l.agent)
	for name, value := range r.Header {
		request.Header.Set(name, value)
	}
	client := l.plain
	if r.Browsing {
		client = l.client
	}
	began := time.Now()
	response, err := client.Do(request)
	answer.Took = time.Since(began)
	if err != nil {
		return answer, late(ctx, bounded, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer.Status, answer.Header, answer.TLS = response.StatusCode, response.Header, response.TLS
	answer.Body, err = read(response.Body, r.Enough)
	answer.Took = time.Since(began)
	if err != nil {
		return answer, late(ctx, bounded, err)
	}
	return answer, nil
}

// late distinguishes our time limit from a cancelled context.
func late(outer, bounded context.Context, err error) error {
	if bounded.Err() != nil && outer.Err() == nil {
		return ErrTooLate
	}
	return err
}

// read reads until the end, or until enough returns true: a stream of events may never end.
func read(body io.Reader, enough func([]byte) bool) ([]byte, error) {
	var all bytes.Buffer
	chunk := make([]byte, 8<<10)
	for {
		n, err := body.Read(chunk)
		all.Write(chunk[:n])
		switch {
		case all.Len() > maxBody:
			return all.Bytes()[:maxBody], ErrTooLarge
		case errors.Is(err, io.EOF), enough != nil && n > 0 && enough(all.Bytes()):
			return all.Bytes(), nil
		case err != nil:
			return all.Bytes(), fmt.Errorf("the response ended early: %w", err)
		}
	}
}
