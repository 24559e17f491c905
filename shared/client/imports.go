package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

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

// Import sends a CSV file: a header with name, summary, status, startsOn and endsOn in any order, of which only name is
// required, then one programme per row, with commas, semicolons or tabs between the cells. The response means that the
// file was accepted, not that it was processed (spec 4.5): use WaitForImport for the result.
func (p Programmes) Import(ctx context.Context, csv io.Reader, options ...WriteOption) (Import, error) {
	content, err := io.ReadAll(io.LimitReader(csv, MaxImport+1))
	if err != nil {
		return Import{}, fmt.Errorf("almoner: read the file to import: %w", err)
	}
	if len(content) > MaxImport {
		return Import{}, errors.New("almoner: a file to import can have at most 2 MiB")
	}
	var accepted Import
	_, err = p.c.do(ctx, p.c.write(http.MethodPost, programmesPath+"/imports", "text/csv", content, options), &accepted)
	return accepted, err
}

// ReadImport returns the current state of an import.
func (p Programmes) ReadImport(ctx context.Context, id string) (Import, error) {
	var i Import
	_, err := p.c.do(ctx, p.c.get(programmesPath+"/imports/"+url.PathEscape(id), nil), &i)
	return i, err
}

// WaitForImport polls an import until it is processed or rejected, or until ctx ends. A rejected import is
// not an error: see Status and Errors.
func (p Programmes) WaitForImport(ctx context.Context, id string) (Import, error) {
	return poll(ctx, "import "+id, func() (Import, bool, error) {
		i, err := p.ReadImport(ctx, id)
		return i, i.Status != ImportAccepted, err
	})
}
