package settings

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/spreadsheet"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// A workspaceLog is a log of one workspace, latest entry first, that can be searched and exported.
type workspaceLog[T any] struct {
	section  ui.Section // of its page
	size     int        // entries on a page
	read     func(context.Context, uuid.UUID, audit.Search, audit.Cursor, int) ([]T, error)
	cursor   func(T) audit.Cursor
	name     string // of the exported files, without the workspace
	exported audit.Action
	columns  []string         // of the CSV file
	cells    func(T) []string // of the CSV file; a text that a spreadsheet would run as a formula is marked as text
	line     func(T) any      // the JSON object
}

// A logPage is what the page of a log has.
type logPage struct {
	page
	Older  string // path to older entries, or ""
	Later  bool   // this is not the first page
	Search logSearch
	path   string
}

// Export returns the path of an export of the search.
func (l *logPage) Export(extension string) string {
	return l.path + "." + extension + "?tenant=" + l.Workspace.ID + l.Search.Query()
}

// Latest returns the path of the first page of the search.
func (l *logPage) Latest() string { return l.All() + l.Search.Query() }

// All returns the path of the page without a search.
func (l *logPage) All() string { return l.path + "?tenant=" + l.Workspace.ID }

// entries returns the entries of the page that the URL selects.
func (w workspaceLog[T]) entries(r *request) (found []T, out logPage, err error) {
	out = logPage{Search: readSearch(r.form), path: w.section.Path()}
	from := readMark(r.form.Get("before"))
	out.Later = from != audit.Cursor{}
	err = r.logTurn(func() error {
		return r.readLog(r.ctx(), func() (err error) {
			found, err = w.read(r.ctx(), r.here.Workspace.ID, out.Search.of(), from, w.size+1)
			return err
		})
	})
	if len(found) > w.size {
		found = found[:w.size]
		out.Older = r.path(w.section) + out.Search.Query() + "&before=" + writeMark(w.cursor(found[w.size-1]))
	}
	if out.Search.Problem() != "" {
		r.status = http.StatusBadRequest
	}
	return found, out, err
}

// exportPage is the number of entries that an export reads at once.
const exportPage = 500

const exportTime = 5 * time.Minute

// A format is the format of an export.
type format struct{ extension, contentType string }

var (
	jsonLines = format{"jsonl", "application/jsonl; charset=utf-8"}
	commas    = format{"csv", "text/csv; charset=utf-8; header=present"}
)

// export returns the handler of an export of the whole log, or of those entries that a search finds.
func (w workspaceLog[T]) export(as format) handler {
	return func(r *request) error {
		return r.logTurn(func() error {
			if r.http.Method == http.MethodGet {
				id := r.here.Workspace.ID
				if err := r.Store.Record(r.ctx(), r.event(&id, w.exported, "tenant:"+id.String(), nil)); err != nil {
					return err
				}
			}
			return w.write(r, as)
		})
	}
}

// write writes the file, page by page, and checks before each page that the user may still read it in the workspace. If
// the access ends or the store fails after the response has begun, no status can report it. write then aborts the
// connection, so that the client notices that the file is incomplete.
//
// It responds to HEAD without a body and reads only the first page. The caller calls it in logTurn.
func (w workspaceLog[T]) write(r *request, as format) error {
	lines, err := w.next(r, audit.Cursor{})
	if err != nil {
		return err
	}
	file := w.name + "-" + r.here.Workspace.ID.String() + "." + as.extension
	r.w.Header().Set("Content-Type", as.contentType)
	r.w.Header().Set("Content-Disposition", `attachment; filename="`+file+`"`)
	r.w.Header().Set("X-Content-Type-Options", "nosniff")
	r.w.Header().Set("Cache-Control", "no-store")
	if r.http.Method == http.MethodHead {
		return nil
	}
	// The error means that the writer has no deadlines.
	end := time.Now().Add(exportTime)
	_ = http.NewResponseController(r.w).SetWriteDeadline(end)
	encode := w.encoder(r.w, as)
	for len(lines) > 0 {
		for _, one := range lines {
			if encode(one) != nil {
				return nil // the client has closed the connection
			}
		}
		if len(lines) < exportPage {
			return nil
		}
		last := w.cursor(lines[len(lines)-1])
		for lines, err = w.next(r, last); errors.Is(err, errBusy) && time.Now().Before(end); {
			lines, err = w.next(r, last)
		}
		if errors.Is(err, audit.ErrNotAuthorized) {
			panic(http.ErrAbortHandler)
		}
		if err != nil {
			r.Log.ErrorContext(r.ctx(), "export aborted", "error", err)
			panic(http.ErrAbortHandler)
		}
	}
	return nil
}

// next reads the next entries in a turn.
func (w workspaceLog[T]) next(r *request, from audit.Cursor) (lines []T, err error) {
	search := readSearch(r.form).of()
	err = r.readLog(r.ctx(), func() error {
		if err := r.Store.StillAllowed(r.ctx(), r.authorization()); err != nil {
			return err
		}
		lines, err = w.read(r.ctx(), r.here.Workspace.ID, search, from, exportPage)
		return err
	})
	return lines, err
}

func (w workspaceLog[T]) encoder(to io.Writer, as format) func(T) error {
	if as == jsonLines {
		encoder := web.NewEncoder(to)
		return func(one T) error { return encoder.Encode(w.line(one)) }
	}
	_, _ = io.WriteString(to, spreadsheet.ByteOrderMark) // a later write fails too
	writer := csv.NewWriter(to)
	_ = writer.Write(w.columns) // Flush reports an error
	writer.Flush()
	return func(one T) error {
		row := w.cells(one)
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

// Limits of the searches and exports of logs in one process. They use the connections to Postgres that refreshes use.
const (
	turnsPerUser = 2 // searches and exports of a user
	turnsOfReads = 4 // reads of pages by all users
	turnWait     = 3 * time.Second
	maxWaiting   = 8   // searches and exports of a user, running or waiting
	maxReads     = 256 // of all users, running or waiting
)

// turns limits concurrent searches and exports of logs. An export counts towards the limit of its user until it ends.
// It counts towards the limit of all users only while it reads a page, so that a slow client does not delay others.
type turns struct {
	users *inflight.Requests[uuid.UUID]
	reads *inflight.Requests[struct{}]
}

func newTurns() turns {
	return turns{
		users: inflight.New[uuid.UUID](inflight.Bounds{InFlight: maxWaiting, AtOnce: turnsPerUser, Wait: turnWait}),
		reads: inflight.New[struct{}](inflight.Bounds{InFlight: maxReads, AtOnce: turnsOfReads, Wait: turnWait}),
	}
}

// errBusy reports that too many searches and exports are running.
var errBusy = errors.New("too many searches and exports are running")

// logTurn runs serve, which searches or exports a log, once the user has fewer than turnsPerUser others running. If
// that takes longer than turnWait, it writes a 429 and returns errAnswered.
func (r *request) logTurn(serve func() error) error {
	turn, err := r.turns.users.Enter(r.ctx(), r.user.User.ID)
	if err == nil {
		defer turn.Leave(false)
		err = serve()
	} else if r.ctx().Err() == nil {
		err = errBusy
	}
	if !errors.Is(err, errBusy) {
		return err
	}
	r.w.Header().Set("Retry-After", strconv.Itoa(int(turnWait/time.Second)))
	r.Pages.ShowError(r.w, r.http, &ui.Message{
		Frame:   r.errorFrame(),
		Status:  http.StatusTooManyRequests,
		Heading: "Too many searches and exports are running",
		Text:    "Wait until one of them has finished, then try again.",
	})
	return errAnswered
}

// readLog runs read, which reads a page of a log, once fewer than turnsOfReads others are running. It returns errBusy
// if that takes longer than turnWait.
func (s *Settings) readLog(ctx context.Context, read func() error) error {
	turn, err := s.turns.reads.Enter(ctx, struct{}{})
	switch {
	case err == nil:
		defer turn.Leave(false)
		return read()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errBusy
}
