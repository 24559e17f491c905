package settings

import (
	"encoding/csv"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/spreadsheet"
	"github.com/almonerhq/almoner/shared/web"
)

// ExportPage is the number of lines that Export.Page returns, except for the last page.
const ExportPage = 500

const exportTime = 5 * time.Minute

// A Format is the format of an export.
type Format struct{ Extension, contentType string }

// The formats.
var (
	JSONLines = Format{"jsonl", "application/jsonl; charset=utf-8"}
	CSV       = Format{"csv", "text/csv; charset=utf-8; header=present"}
)

// An Export is a file with a list.
type Export[T any] struct {
	Name    string           // of the file, without its extension
	Columns []string         // of the CSV file
	Cells   func(T) []string // of the CSV file; a text that a spreadsheet would run as a formula is marked as text
	Line    func(T) any      // the JSON object
	// Page returns the ExportPage lines after the given one, or the first lines if after is nil.
	Page func(after *T) ([]T, error)
}

// Write writes the file, page by page, and checks before each page that the user may still read it in the workspace. If
// the access ends or the store fails after the response has begun, no status can report it. Write then aborts the
// connection, so that the client notices that the file is incomplete.
//
// It responds to HEAD without a body and reads only the first page. The caller calls it in LogTurn.
func (x Export[T]) Write(h *Settings, v *Request, here Scope, as Format) error {
	lines, err := x.page(h, v, here, nil)
	if err != nil {
		return err
	}
	v.W.Header().Set("Content-Type", as.contentType)
	v.W.Header().Set("Content-Disposition", `attachment; filename="`+x.Name+"."+as.Extension+`"`)
	v.W.Header().Set("X-Content-Type-Options", "nosniff")
	v.W.Header().Set("Cache-Control", "no-store")
	if v.R.Method == http.MethodHead {
		return nil
	}
	// The error means that the writer has no deadlines.
	end := time.Now().Add(exportTime)
	_ = http.NewResponseController(v.W).SetWriteDeadline(end)
	encode := x.encoder(v.W, as)
	for len(lines) > 0 {
		for _, one := range lines {
			if encode(one) != nil {
				return nil // the client has closed the connection
			}
		}
		if len(lines) < ExportPage {
			return nil
		}
		last := &lines[len(lines)-1]
		for lines, err = x.page(h, v, here, last); errors.Is(err, errBusy) && time.Now().Before(end); {
			lines, err = x.page(h, v, here, last)
		}
		if errors.Is(err, audit.ErrNotAuthorized) {
			panic(http.ErrAbortHandler)
		}
		if err != nil {
			h.Log.ErrorContext(v.R.Context(), "export aborted", "error", err)
			panic(http.ErrAbortHandler)
		}
	}
	return nil
}

// page reads the next lines in a turn.
func (x Export[T]) page(h *Settings, v *Request, here Scope, after *T) (lines []T, err error) {
	ctx := v.R.Context()
	err = h.ReadLog(ctx, func() error {
		if err := h.Access.StillAllowed(ctx, v.EventIn(here, "", "", nil).Authorization); err != nil {
			return err
		}
		lines, err = x.Page(after)
		return err
	})
	return lines, err
}

func (x Export[T]) encoder(w io.Writer, as Format) func(T) error {
	if as == JSONLines {
		encoder := web.NewEncoder(w)
		return func(one T) error { return encoder.Encode(x.Line(one)) }
	}
	_, _ = io.WriteString(w, spreadsheet.ByteOrderMark) // a later write fails too
	writer := csv.NewWriter(w)
	_ = writer.Write(x.Columns) // Flush reports an error
	writer.Flush()
	return func(one T) error {
		row := x.Cells(one)
		for i, text := range row {
			row[i] = spreadsheet.Cell(text)
		}
		if err := writer.Write(row); err != nil {
			return err
		}
		writer.Flush()
		return writer.Error()
	}
}
