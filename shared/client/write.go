package client

import (
	"context"
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

// An ItemResult is the result of one item of a batch.
type ItemResult struct {
	Status int        `json:"status"` // HTTP status of the item, as if it had been sent in its own request
	ID     string     `json:"id"`     // of the programme; "" if Error is not nil
	Error  *ItemError `json:"error"`
}

// An ItemError describes why an item of a batch was refused.
type ItemError struct {
	Code    string            `json:"code"`
	Message string            `json:"message"`
	Fields  map[string]string `json:"fields"`
}

// A ProgrammeMove is a change of the status of a programme.
type ProgrammeMove struct {
	ID string          `json:"id"`
	To ProgrammeStatus `json:"to"`
}

// Batch creates up to 500 programmes, or changes those whose ExternalID exists. It returns a result for each item, in
// order; a refused item does not affect the others.
func (p Programmes) Batch(ctx context.Context, items []NewProgramme, options ...WriteOption) ([]ItemResult, error) {
	return sendItems(ctx, p.c, programmesPath+"/batch", items, options)
}

// MoveAll changes the status of up to 500 programmes. It returns a result for each item, in order; a refused item does
// not affect the others.
func (p Programmes) MoveAll(ctx context.Context, items []ProgrammeMove, options ...WriteOption) ([]ItemResult, error) {
	return sendItems(ctx, p.c, programmesPath+"/transitions", items, options)
}

func sendItems[T any](
	ctx context.Context, c *caller, path string, items []T, options []WriteOption,
) ([]ItemResult, error) {
	r, err := c.writeJSON(http.MethodPost, path, map[string][]T{"items": items}, options)
	if err != nil {
		return nil, err
	}
	var out struct {
		Data []ItemResult `json:"data"`
	}
	_, err = c.do(ctx, r, &out)
	return out.Data, err
}
