package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	mathrand "math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/oauth2"
)

// Limits of a response in bytes. A page of a list has up to 4 MB; earlier releases returned longer ones.
const (
	longestAnswer  = 16 << 20
	longestRefusal = 64 << 10
)

// keyHeader is the header that makes a request repeatable.
const keyHeader = "Idempotency-Key"

// caller sends requests to one deployment.
type caller struct {
	base      string
	workspace string // "" for requests outside workspaces
	tokens    oauth2.TokenSource
	http      *http.Client
	agent     string
	retries   Retries
}

// newCaller returns a caller without tokens. A nil client means one with a timeout.
func newCaller(baseURL string, h *http.Client) (*caller, error) {
	base, err := address(baseURL)
	if err != nil {
		return nil, err
	}
	return &caller{base: base, http: withoutRedirects(h), agent: DefaultUserAgent}, nil
}

// A request is one API call.
type request struct {
	method     string
	path       string // below the base URL; contains no secret
	query      url.Values
	header     http.Header
	body       []byte
	idempotent bool          // it may be retried
	within     time.Duration // time limit of one try; 0 means the limit of the HTTP client
	err        error         // why the body cannot be encoded; the request is not sent
}

// formRequest returns a POST of a form.
func formRequest(path string, form url.Values) request {
	header := http.Header{"Content-Type": {formType}}
	return request{method: http.MethodPost, path: path, header: header, body: []byte(form.Encode())}
}

// jsonRequest returns a request with a value as JSON.
func jsonRequest(method, path string, value any) request {
	r := request{method: method, path: path, header: http.Header{"Content-Type": {jsonType}}}
	var err error
	if r.body, err = json.Marshal(value); err != nil {
		r.err = fmt.Errorf("almoner: %s %s: encode the request body: %w", method, path, err)
	}
	return r
}

// A silence is a request without a response.
type silence struct{ error }

func (s silence) Unwrap() error { return s.error }

// do sends the request, retries it if allowed and useful, and decodes the JSON response into the value,
// unless that is nil.
func (c *caller) do(ctx context.Context, r request, into any) (http.Header, error) {
	for tried := 0; ; tried++ {
		header, err := c.once(ctx, r, into)
		if err == nil || !r.idempotent || tried >= c.retries.Most || ctx.Err() != nil {
			return header, err
		}
		wait, helps := c.retries.wait(err, tried)
		if deadline, bounded := ctx.Deadline(); !helps || (bounded && time.Until(deadline) < wait) {
			return header, err
		}
		select {
		case <-ctx.Done():
			return header, errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// fetch sends a request as do does, and returns the response.
func fetch[T any](ctx context.Context, c *caller, r request) (out T, err error) {
	_, err = c.do(ctx, r, &out)
	return out, err
}

// wait returns how long to wait after the failure, and whether a retry can help.
func (r Retries) wait(err error, tried int) (time.Duration, bool) {
	longest := r.LongestWait
	if longest == 0 {
		longest = 30 * time.Second
	}
	backoff := min(longest, 200*time.Millisecond<<min(tried, 10))
	backoff = backoff/2 + mathrand.N(backoff/2+1) // jitter, so that callers do not retry at the same moment
	refusal, answered := errors.AsType[*Error](err)
	switch {
	case answered && refusal.RetryAfter > longest:
		return 0, false
	case answered:
		return max(refusal.RetryAfter, backoff), refusal.Temporary()
	}
	_, unanswered := errors.AsType[silence](err)
	return backoff, unanswered
}

func (c *caller) once(ctx context.Context, r request, into any) (http.Header, error) {
	if r.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.within)
		defer cancel()
	}
	response, err := c.send(ctx, r, c.http)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return response.Header, read(r, response, into)
}

// stream returns the body of a successful response, which the caller closes. Only ctx limits its time.
func (c *caller) stream(ctx context.Context, r request) (io.ReadCloser, error) {
	unlimited := *c.http
	unlimited.Timeout = 0
	response, err := c.send(ctx, r, &unlimited)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer func() { _ = response.Body.Close() }()
		return nil, read(r, response, nil)
	}
	return response.Body, nil
}

// send sends one try of the request. The caller closes the body of the response.
func (c *caller) send(ctx context.Context, r request, with *http.Client) (*http.Response, error) {
	if r.err != nil {
		return nil, r.err
	}
	address := c.base + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("almoner: %s %s: cannot create the request", r.method, r.path)
	}
	for name, values := range r.header {
		sent.Header[name] = values
	}
	sent.Header.Set("User-Agent", c.agent)
	sent.Header.Set("Accept", "application/json")
	if c.tokens != nil {
		token, err := c.tokens.Token()
		if err != nil {
			return nil, fmt.Errorf("almoner: no access token: %w", err)
		}
		token.SetAuthHeader(sent)
	}
	response, err := with.Do(sent)
	if err != nil {
		return nil, silence{fmt.Errorf("almoner: %s %s: no response: %w", r.method, r.path, withoutAddress(err))}
	}
	return response, nil
}

// read reads a response.
func read(r request, response *http.Response, into any) error {
	success := response.StatusCode >= 200 && response.StatusCode < 300
	longest := int64(longestRefusal)
	if success {
		longest = longestAnswer
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, longest+1))
	if err != nil {
		err = withoutAddress(err)
		return silence{fmt.Errorf("almoner: %s %s: the response is incomplete: %w", r.method, r.path, err)}
	}
	strange := func(why string) error {
		e := refusalOf(r, response, nil)
		e.Message = why
		return e
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case int64(len(content)) > longest:
		return strange("the response is too long to be from Almoner")
	case !success:
		return refusalOf(r, response, content)
	case into == nil:
		return nil
	case kind != "application/json":
		const foreign = "the response has type %.60q instead of JSON: the server at this address is not Almoner"
		return strange(fmt.Sprintf(foreign, kind))
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if decoder.Decode(into) != nil {
		return strange("the response is not the expected JSON")
	}
	return nil
}

// withoutAddress removes the address from the error, because its query may be private.
func withoutAddress(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// A WriteOption configures one write.
type WriteOption func(http.Header)

// IfMatch makes the write conditional on the version that ETag names; otherwise it fails with
// CodePreconditionFailed. An empty tag means no condition.
func IfMatch(etag string) WriteOption {
	return func(h http.Header) {
		if etag != "" {
			h.Set("If-Match", etag)
		}
	}
}

// IdempotencyKey sets the key of the write: repeated with the same key within 24 hours, by any process, it
// returns the first response and has no second effect. Without this option each call has a unique key.
func IdempotencyKey(key string) WriteOption {
	return func(h http.Header) { h.Set(keyHeader, key) }
}

// get returns a read within the workspace (spec 5.1).
func (c *caller) get(path string, query url.Values) request {
	header := http.Header{"X-Tenant-Id": {c.workspace}}
	return request{method: http.MethodGet, path: path, query: query, header: header, idempotent: true}
}

// write makes a request a write within the workspace (C3).
func (c *caller) write(r request, options []WriteOption) request {
	r.header.Set("X-Tenant-Id", c.workspace)
	r.header.Set(keyHeader, rand.Text())
	for _, option := range options {
		option(r.header)
	}
	r.idempotent = true
	return r
}

// writeJSON returns a write of the value as JSON.
func (c *caller) writeJSON(method, path string, value any, options []WriteOption) request {
	return c.write(jsonRequest(method, path, value), options)
}

// setPage sets the page size and the time of the oldest update. Zero values are omitted.
func setPage(query url.Values, size int, updatedSince time.Time) {
	if size != 0 {
		query.Set("limit", strconv.Itoa(size))
	}
	setTime(query, "updatedSince", updatedSince)
}

// setTime sets a parameter unless the time is zero.
func setTime(query url.Values, name string, t time.Time) {
	if !t.IsZero() {
		query.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}

// A Page is one page of a list.
type Page[T any] struct {
	Records []T
	Next    string // cursor of the next page, or "" after the last one
}

// pageOf returns the page at a cursor, or the first page if the cursor is "".
func pageOf[T any](ctx context.Context, c *caller, r request, cursor string) (Page[T], error) {
	query := url.Values{}
	maps.Copy(query, r.query)
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	r.query = query
	var p struct {
		Data []T `json:"data"`
		Meta struct {
			NextCursor string `json:"nextCursor"`
		} `json:"meta"`
	}
	_, err := c.do(ctx, r, &p)
	return Page[T]{p.Data, p.Meta.NextCursor}, err
}

var errSameCursor = errors.New("almoner: the next cursor of a page is its own cursor")

// list iterates over all pages of a list, starting with r (C1). It stops after an error.
func list[T any](ctx context.Context, c *caller, r request) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for cursor := ""; ; {
			p, err := pageOf[T](ctx, c, r, cursor)
			if err == nil && p.Next != "" && p.Next == cursor {
				err = errSameCursor
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range p.Records {
				if !yield(one, nil) {
					return
				}
			}
			if p.Next == "" {
				return
			}
			cursor = p.Next
		}
	}
}

// poll calls read until it reports the end of something, or until ctx ends. It waits 50 ms at first and at most 2 s.
func poll[T any](ctx context.Context, what string, read func() (state T, ended bool, err error)) (T, error) {
	const longest = 2 * time.Second
	for wait := 50 * time.Millisecond; ; wait = min(longest, wait*2) {
		state, ended, err := read()
		if err != nil || ended {
			return state, err
		}
		select {
		case <-ctx.Done():
			return state, fmt.Errorf("almoner: %s is not processed yet: %w", what, ctx.Err())
		case <-time.After(wait):
		}
	}
}
