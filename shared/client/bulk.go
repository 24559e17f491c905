package client

import (
	"context"
	"net/http"
)

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
	ctx context.Context,
	c *caller,
	path string,
	items []T,
	options []WriteOption,
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
