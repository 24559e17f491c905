package client

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
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
	var out struct {
		Data []ItemResult `json:"data"`
	}
	_, err := c.do(ctx, c.writeJSON(http.MethodPost, path, map[string][]T{"items": items}, options), &out)
	return out.Data, err
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
