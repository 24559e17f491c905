package client

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/url"
	"strconv"
	"time"
)

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
	var p page[T]
	_, err := c.do(ctx, r, &p)
	return Page[T]{p.Data, p.Meta.NextCursor}, err
}

type page[T any] struct {
	Data []T `json:"data"`
	Meta struct {
		NextCursor string `json:"nextCursor"`
	} `json:"meta"`
}

var errSameCursor = errors.New("almoner: the next cursor of a page is its own cursor")

// list iterates over all pages of a list, starting with r (C1). It stops after an error.
func list[T any](ctx context.Context, c *caller, r request) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := url.Values{}
		maps.Copy(query, r.query)
		for {
			var p page[T]
			r := r
			r.query = query
			_, err := c.do(ctx, r, &p)
			if err == nil && p.Meta.NextCursor != "" && p.Meta.NextCursor == query.Get("cursor") {
				err = errSameCursor
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range p.Data {
				if !yield(one, nil) {
					return
				}
			}
			if p.Meta.NextCursor == "" {
				return
			}
			query.Set("cursor", p.Meta.NextCursor)
		}
	}
}
