package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const (
	erasuresPath   = "/v1/engage/erasures"
	supportersPath = "/v1/engage/supporters"
)

// The statuses of an erasure. One of up to 1,000 submissions is processed at once.
const (
	ErasureAccepted  = "accepted"
	ErasureProcessed = "processed"
)

// An Erasure is the result of erasing a form or a supporter with their submissions (contract, section 6a). From the
// moment it is accepted, none of them can be read.
type Erasure struct {
	ID                 string `json:"id"` // "" if the erasure was processed at once
	Status             string `json:"status"`
	DeletedSubmissions int    `json:"deletedSubmissions"` // so far
}

// Erase deletes a form and its submissions. If there are more than 1,000, the erasure is only accepted: call
// WaitForErasure to wait until it is processed.
func (f Forms) Erase(ctx context.Context, form string, options ...WriteOption) (Erasure, error) {
	return f.erase(ctx, f.c.write(http.MethodDelete, f.path(form), "application/json", nil, options))
}

// EraseSupporter deletes a supporter and all that they sent, as Erase does.
func (f Forms) EraseSupporter(ctx context.Context, id string, options ...WriteOption) (Erasure, error) {
	path := supportersPath + "/" + url.PathEscape(id)
	return f.erase(ctx, f.c.write(http.MethodDelete, path, "application/json", nil, options))
}

// EraseAddress deletes all that was sent with an e-mail address, as Erase does. An unknown address is no error.
func (f Forms) EraseAddress(ctx context.Context, email string, options ...WriteOption) (Erasure, error) {
	r, err := f.c.writeJSON(http.MethodPost, supportersPath+"/erase", map[string]string{"email": email}, options)
	if err != nil {
		return Erasure{}, err
	}
	return f.erase(ctx, r)
}

func (f Forms) erase(ctx context.Context, r request) (Erasure, error) {
	e := Erasure{Status: ErasureProcessed} // the response to an erasure that was processed at once has no status
	_, err := f.c.do(ctx, r, &e)
	if err != nil {
		return Erasure{}, err
	}
	return e, nil
}

// ReadErasure returns the current state of an accepted erasure, for 30 days after its end.
func (f Forms) ReadErasure(ctx context.Context, id string) (Erasure, error) {
	var e Erasure
	_, err := f.c.do(ctx, f.c.get(erasuresPath+"/"+url.PathEscape(id), nil), &e)
	return e, err
}

// WaitForErasure polls an accepted erasure until it is processed, or until ctx ends.
func (f Forms) WaitForErasure(ctx context.Context, id string) (Erasure, error) {
	return poll(ctx, "erasure "+id, func() (Erasure, bool, error) {
		e, err := f.ReadErasure(ctx, id)
		return e, e.Status != ErasureAccepted, err
	})
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
