package client

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

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

// workspaceHeader returns the headers of a request within the workspace (spec 5.1).
func (c *caller) workspaceHeader() http.Header { return http.Header{"X-Tenant-Id": {c.workspace}} }

// get returns a read within the workspace.
func (c *caller) get(path string, query url.Values) request {
	return request{method: http.MethodGet, path: path, query: query, header: c.workspaceHeader(), again: true}
}

// write returns a write within the workspace (C3).
func (c *caller) write(method, path, contentType string, body []byte, options []WriteOption) request {
	header := c.workspaceHeader()
	header.Set("Content-Type", contentType)
	header.Set("Idempotency-Key", rand.Text())
	for _, option := range options {
		option(header)
	}
	return request{method: method, path: path, header: header, body: body, again: true}
}

// writeJSON returns a write of the value as JSON.
func (c *caller) writeJSON(method, path string, value any, options []WriteOption) (request, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return request{}, fmt.Errorf("almoner: %s %s: encode the request body: %w", method, path, err)
	}
	return c.write(method, path, "application/json", body, options), nil
}
