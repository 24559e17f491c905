// Package wire answers: what did a server that nobody vouches for answer, and what of it may be shown?
//
// The subject of the doctor is a broken server, perhaps a hostile one. So every answer is bounded in time and in size,
// no redirect is followed, and nothing is shown but what Secrets has gone over. It is the one place of the doctor that
// opens a connection.
//
// Callers: package doctor.
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
	maxBody    = 256 << 10 // bytes of one answer, unpacked
	maxHeaders = 64 << 10  // bytes
)

// A Request is what is sent.
type Request struct {
	Method, URL string
	Note        string // what it is, where the address does not say so
	Header      map[string]string
	Body        string
	Within      time.Duration // for the whole answer
	Browsing    bool          // with the cookies of the browser that the doctor plays
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

// An Answer is what came back.
type Answer struct {
	Request Request
	Status  int
	Header  http.Header
	Body    []byte
	Took    time.Duration
	TLS     *tls.ConnectionState // nil without TLS
}

// Errors of Send, besides those of the network.
var (
	ErrTooLarge = errors.New("the answer is larger than 256 KiB")
	ErrTooLate  = errors.New("the answer took too long")
)

// A Line is how the doctor speaks to servers. It is safe for concurrent use.
type Line struct {
	client *http.Client // with cookies
	plain  *http.Client
	agent  string
}

// NewLine makes a Line. agent says who is calling, to whoever reads the server's log.
func NewLine(agent string) (*Line, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, fmt.Errorf("make a cookie jar: %w", err)
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

// Close drops the connections.
func (l *Line) Close() { l.plain.CloseIdleConnections() }

// Send sends a request and reads the answer. Its errors are ErrTooLarge, ErrTooLate, that of ctx, or the network's;
// with any of them the answer holds what is known so far.
func (l *Line) Send(ctx context.Context, r Request) (Answer, error) {
	answer := Answer{Request: r, Header: http.Header{}}
	bounded, cancel := context.WithTimeout(ctx, r.Within)
	defer cancel()
	request, err := http.NewRequestWithContext(bounded, r.Method, r.URL, strings.NewReader(r.Body))
	if err != nil {
		return answer, fmt.Errorf("the address cannot be used: %w", err)
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

// late tells a time limit of ours from the person who has given up.
func late(outer, bounded context.Context, err error) error {
	if bounded.Err() != nil && outer.Err() == nil {
		return ErrTooLate
	}
	return err
}

// read reads until the end, or until it is enough: a stream of events may never end.
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
			return all.Bytes(), fmt.Errorf("the answer broke off: %w", err)
		}
	}
}
