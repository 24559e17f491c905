package client

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	return f.erase(ctx, deletion(f.path(form)), options)
}

// EraseSupporter deletes a supporter and all that they sent, as Erase does.
func (f Forms) EraseSupporter(ctx context.Context, id string, options ...WriteOption) (Erasure, error) {
	return f.erase(ctx, deletion(supportersPath+"/"+url.PathEscape(id)), options)
}

// EraseAddress deletes all that was sent with an e-mail address, as Erase does. An unknown address is no error.
func (f Forms) EraseAddress(ctx context.Context, email string, options ...WriteOption) (Erasure, error) {
	r := jsonRequest(http.MethodPost, supportersPath+"/erase", map[string]string{"email": email})
	return f.erase(ctx, r, options)
}

func deletion(path string) request {
	return request{method: http.MethodDelete, path: path, header: http.Header{"Content-Type": {jsonType}}}
}

func (f Forms) erase(ctx context.Context, r request, options []WriteOption) (Erasure, error) {
	e := Erasure{Status: ErasureProcessed} // the response to an erasure that was processed at once has no status
	if _, err := f.c.do(ctx, f.c.write(r, options), &e); err != nil {
		return Erasure{}, err
	}
	return e, nil
}

// ReadErasure returns the current state of an accepted erasure, for 30 days after its end.
func (f Forms) ReadErasure(ctx context.Context, id string) (Erasure, error) {
	return fetch[Erasure](ctx, f.c, f.c.get(erasuresPath+"/"+url.PathEscape(id), nil))
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

// MaxImport is the maximum size of an import file in bytes.
const MaxImport = 2 << 20

// An ImportStatus is the status of an import.
type ImportStatus string

// The statuses. An accepted import becomes processed if all rows became programmes, or rejected if none did.
const (
	ImportAccepted  ImportStatus = "accepted"
	ImportProcessed ImportStatus = "processed"
	ImportRejected  ImportStatus = "rejected"
)

// An Import is a file of programmes and its result.
type Import struct {
	ID       string        `json:"id"`
	Status   ImportStatus  `json:"status"`
	Imported int           `json:"imported"` // programmes
	Errors   []ImportError `json:"errors"`   // why it was rejected
}

// An ImportError describes an error in a row. The header is row 1.
type ImportError struct {
	Row     int    `json:"row"`
	Field   string `json:"field"` // "" for the whole row
	Message string `json:"message"`
}

// Import sends a CSV file: a header with name, summary, status, startsOn, endsOn and externalId in any order, of which
// only name is required, then one programme per row, with commas, semicolons or tabs between the cells. The response
// means that the file was accepted, not that it was processed (spec 4.5): use WaitForImport for the result.
func (p Programmes) Import(ctx context.Context, csv io.Reader, options ...WriteOption) (Import, error) {
	content, err := io.ReadAll(io.LimitReader(csv, MaxImport+1))
	if err != nil {
		return Import{}, fmt.Errorf("almoner: read the file to import: %w", err)
	}
	if len(content) > MaxImport {
		return Import{}, errors.New("almoner: a file to import can have at most 2 MiB")
	}
	r := request{
		method: http.MethodPost,
		path:   programmesPath + "/imports",
		header: http.Header{"Content-Type": {"text/csv"}},
		body:   content,
	}
	return fetch[Import](ctx, p.c, p.c.write(r, options))
}

// ReadImport returns the current state of an import.
func (p Programmes) ReadImport(ctx context.Context, id string) (Import, error) {
	return fetch[Import](ctx, p.c, p.c.get(programmesPath+"/imports/"+url.PathEscape(id), nil))
}

// WaitForImport polls an import until it is processed or rejected, or until ctx ends. A rejected import is
// not an error: see Status and Errors.
func (p Programmes) WaitForImport(ctx context.Context, id string) (Import, error) {
	return poll(ctx, "import "+id, func() (Import, bool, error) {
		i, err := p.ReadImport(ctx, id)
		return i, i.Status != ImportAccepted, err
	})
}
