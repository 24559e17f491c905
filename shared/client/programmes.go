package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Programmes gives access to the Programmes module of the workspace.
type Programmes struct{ c *caller }

// A ProgrammeStatus is the status of a programme.
type ProgrammeStatus string

// The statuses. A programme moves from draft to active to completed to archived, or from draft to archived.
const (
	Draft     ProgrammeStatus = "draft"
	Active    ProgrammeStatus = "active"
	Completed ProgrammeStatus = "completed"
	Archived  ProgrammeStatus = "archived"
)

// A Programme is a programme record (contract, section 6).
type Programme struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Summary   string          `json:"summary"`
	Status    ProgrammeStatus `json:"status"`
	StartsOn  Date            `json:"startsOn"`
	EndsOn    Date            `json:"endsOn"`
	CreatedAt time.Time       `json:"createdAt"`
	UpdatedAt time.Time       `json:"updatedAt"`
	// ExternalID is the id that the programme has in another system, or "".
	ExternalID string `json:"externalId,omitempty"`

	ETag string `json:"-"` // of this version, for IfMatch; "" in a list
}

// A ProgrammeFilter narrows the list. The zero value matches every programme.
type ProgrammeFilter struct {
	Status   ProgrammeStatus
	Search   string // a part of name or summary, case-insensitive
	PageSize int    // records per page, up to 200; 0 means 50
	// UpdatedSince excludes programmes that were last changed before this time. To follow changes, list again
	// with the newest UpdatedAt of a list that was read to its end: no change is missed, and the newest
	// record is returned again.
	UpdatedSince time.Time
}

const programmesPath = "/v1/programmes/programmes"

// List returns the programmes, newest first.
func (p Programmes) List(ctx context.Context, f ProgrammeFilter) iter.Seq2[Programme, error] {
	return list[Programme](ctx, p.c, p.listed(f))
}

// Page returns one page of List, at a cursor or the first one if cursor is "". A program that stops between pages must
// store Next and continue with the same filter.
func (p Programmes) Page(ctx context.Context, f ProgrammeFilter, cursor string) (Page[Programme], error) {
	return pageOf[Programme](ctx, p.c, p.listed(f), cursor)
}

func (p Programmes) listed(f ProgrammeFilter) request {
	query := url.Values{}
	for name, value := range map[string]string{"status": string(f.Status), "q": f.Search} {
		if value != "" {
			query.Set(name, value)
		}
	}
	setPage(query, f.PageSize, f.UpdatedSince)
	return p.c.get(programmesPath, query)
}

// Get returns one programme.
func (p Programmes) Get(ctx context.Context, id string) (Programme, error) {
	return p.one(ctx, p.c.get(p.path(id), nil))
}

// NewProgramme describes a programme to create. Only Name is required; without a status it is a draft.
type NewProgramme struct {
	Name     string          `json:"name"`
	Summary  string          `json:"summary"`
	Status   ProgrammeStatus `json:"status,omitempty"`
	StartsOn Date            `json:"startsOn"`
	EndsOn   Date            `json:"endsOn"`

	ExternalID string `json:"externalId,omitempty"`
}

// Create creates a programme.
func (p Programmes) Create(ctx context.Context, n NewProgramme, options ...WriteOption) (Programme, error) {
	return p.one(ctx, p.c.writeJSON(http.MethodPost, programmesPath, n, options))
}

// A ProgrammeChange describes changes of a programme. A nil field stays unchanged; a pointer to an empty Date
// removes the day. It cannot change the external id.
type ProgrammeChange struct {
	Name     *string `json:"name,omitempty"`
	Summary  *string `json:"summary,omitempty"`
	StartsOn *Date   `json:"startsOn,omitempty"`
	EndsOn   *Date   `json:"endsOn,omitempty"`
}

// Update changes a programme. Use Move to change the status.
func (p Programmes) Update(
	ctx context.Context, id string, change ProgrammeChange, options ...WriteOption,
) (Programme, error) {
	return p.one(ctx, p.c.writeJSON(http.MethodPatch, p.path(id), change, options))
}

// Put creates the programme with the external id, or changes it if it exists.
func (p Programmes) Put(
	ctx context.Context, externalID string, n NewProgramme, options ...WriteOption,
) (Programme, error) {
	return p.one(ctx, p.c.writeJSON(http.MethodPut, programmesPath+"/external/"+url.PathEscape(externalID), n, options))
}

// Move changes the status. A transition that is not allowed fails with CodeConflict.
func (p Programmes) Move(
	ctx context.Context, id string, to ProgrammeStatus, options ...WriteOption,
) (Programme, error) {
	body := map[string]ProgrammeStatus{"to": to}
	return p.one(ctx, p.c.writeJSON(http.MethodPost, p.path(id)+"/transitions", body, options))
}

func (Programmes) path(id string) string { return programmesPath + "/" + url.PathEscape(id) }

func (p Programmes) one(ctx context.Context, r request) (Programme, error) {
	var out Programme
	header, err := p.c.do(ctx, r, &out)
	if err != nil {
		return Programme{}, err
	}
	out.ETag = header.Get("ETag")
	return out, nil
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
