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

// MaxImport is the largest file that an import takes, in bytes.
const MaxImport = 2 << 20

// An ImportStatus is how far an import is.
type ImportStatus string

// An import is accepted first; then all its rows became programmes, or none did.
const (
	ImportAccepted  ImportStatus = "accepted"
	ImportProcessed ImportStatus = "processed"
	ImportRejected  ImportStatus = "rejected"
)

// An Import is a file of programmes, and what became of it.
type Import struct {
	ID       string        `json:"id"`
	Status   ImportStatus  `json:"status"`
	Imported int           `json:"imported"` // programmes
	Errors   []ImportError `json:"errors"`   // why it was rejected
}

// An ImportError says what is wrong in a row. The header is row 1.
type ImportError struct {
	Row     int    `json:"row"`
	Field   string `json:"field"` // "" where the row as a whole is meant
	Message string `json:"message"`
}

// Import sends a file of CSV: a header of name, summary, status, startsOn and endsOn in any order, of which name alone
// is required, then a programme a row. The answer means that the file was accepted, not that it is dealt with (spec
// 4.5): WaitForImport tells.
func (p Programmes) Import(ctx context.Context, csv io.Reader, options ...WriteOption) (Import, error) {
	content, err := io.ReadAll(io.LimitReader(csv, MaxImport+1))
	if err != nil {
		return Import{}, fmt.Errorf("almoner: read the file to import: %w", err)
	}
	if len(content) > MaxImport {
		return Import{}, errors.New("almoner: a file to import has at most 2 MiB")
	}
	var accepted Import
	_, err = p.c.do(ctx, p.c.write(http.MethodPost, programmesPath+"/imports", "text/csv", content, options), &accepted)
	return accepted, err
}

// ReadImport reads where an import stands.
func (p Programmes) ReadImport(ctx context.Context, id string) (Import, error) {
	var i Import
	_, err := p.c.do(ctx, p.c.get(programmesPath+"/imports/"+url.PathEscape(id), nil), &i)
	return i, err
}

// WaitForImport reads where an import stands until it is dealt with, or until ctx ends. That it was rejected is no
// error of WaitForImport's: Status and Errors tell.
func (p Programmes) WaitForImport(ctx context.Context, id string) (Import, error) {
	const longest = 2 * time.Second
	for wait := 50 * time.Millisecond; ; wait = min(longest, wait*2) {
		i, err := p.ReadImport(ctx, id)
		if err != nil || i.Status != ImportAccepted {
			return i, err
		}
		select {
		case <-ctx.Done():
			return i, fmt.Errorf("almoner: import %s is not dealt with yet: %w", id, ctx.Err())
		case <-time.After(wait):
		}
	}
}
