package client

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// A WriteOption says more about one write.
type WriteOption func(http.Header)

// IfMatch lets the write happen only while the record is the version that ETag names; else it is refused with
// CodePreconditionFailed. An empty tag asks for nothing.
func IfMatch(etag string) WriteOption {
	return func(h http.Header) {
		if etag != "" {
			h.Set("If-Match", etag)
		}
	}
}

// IdempotencyKey names the write: sent again under the name within 24 hours, by whatever process, it gets the first
// answer and has no second effect. Without it each call has a name of its own.
func IdempotencyKey(key string) WriteOption {
	return func(h http.Header) { h.Set("Idempotency-Key", key) }
}

// workspaceed are the headers of a request within the workspace (spec 5.1).
func (c *caller) workspaceed() http.Header { return http.Header{"X-Tenant-Id": {c.workspace}} }

// get is a read within the workspace.
func (c *caller) get(path string, query url.Values) request {
	return request{method: http.MethodGet, path: path, query: query, header: c.workspaceed(), again: true}
}

// write is a write within the workspace (C3).
func (c *caller) write(method, path, contentType string, body []byte, options []WriteOption) request {
	header := c.workspaceed()
	header.Set("Content-Type", contentType)
	header.Set("Idempotency-Key", rand.Text())
	for _, option := range options {
		option(header)
	}
	return request{method: method, path: path, header: header, body: body, again: true}
}

// writeJSON is a write of the value.
func (c *caller) writeJSON(method, path string, value any, options []WriteOption) (request, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return request{}, fmt.Errorf("almoner: %s %s: what is to be sent is no JSON: %w", method, path, err)
	}
	return c.write(method, path, "application/json", body, options), nil
}
