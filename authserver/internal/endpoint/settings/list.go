package settings

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/spreadsheet"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// pageSize is the number of rows on a page of a list. shortPage is that of a second list below the main one.
const pageSize, shortPage = 25, 10

// A listPage is the search and the page of a list.
type listPage struct {
	Of              string // what the rows are, such as "members"
	All             int    // rows without the search
	Many            bool   // there are more than All, which were not counted
	Found           int
	From, To        int    // of the page, from 1
	Words           string // search text, or ""
	Previous, Later string // paths of the other pages, or ""
}

// A listView is a page with one list.
type listView[Row any] struct {
	page
	Rows []Row
	List listPage // if the list has pages
}

// A listing selects the page of a list by the parameters of the URL. The list is on the page of the request's section.
type listing[Row any] struct {
	Of        string // what the rows are
	Parameter string // of the number of the page; "page" if empty
	Size      int    // of a page; pageSize if 0

	First func(Row) bool     // reports whether a row comes first, or nil
	Text  func(Row) []string // what the search looks at; nil if the list has no search
}

// Select returns the rows of the page that the URL selects, and describes it.
func (l listing[Row]) Select(r *request, rows []Row) ([]Row, listPage) {
	query, here := r.query(), r.path(r.section)
	parameter, size := cmp.Or(l.Parameter, "page"), cmp.Or(l.Size, pageSize)
	out := listPage{Of: l.Of, All: len(rows)}
	if l.Text != nil {
		out.Words = spelling.Pasted(query.Get("q"))
	}
	var found, first []Row
	for _, row := range rows {
		switch {
		case l.First != nil && l.First(row):
			first = append(first, row)
		case out.Words == "" || contains(out.Words, l.Text(row)):
			found = append(found, row)
		}
	}
	found = append(first, found...)
	out.Found = len(found)
	last := max(0, (len(found)-1)/size)
	number, err := strconv.Atoi(query.Get(parameter))
	if err != nil {
		number = 1
	}
	number = min(max(number-1, 0), last)
	path := func(to int) string {
		if to < 0 || to > last {
			return ""
		}
		other := url.Values{parameter: {strconv.Itoa(to + 1)}}
		if out.Words != "" {
			other.Set("q", out.Words)
		}
		separator := "?"
		if strings.Contains(here, "?") {
			separator = "&"
		}
		return here + separator + other.Encode()
	}
	out.Previous, out.Later = path(number-1), path(number+1)
	shown := found[number*size : min(len(found), (number+1)*size)]
	out.From, out.To = number*size+1, number*size+len(shown)
	return shown, out
}

// contains reports whether one of the texts contains words, ignoring case.
func contains(words string, texts []string) bool {
	words = spelling.Search(words)
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(spelling.Fold(text), words) })
}

// A logSearch is a submitted search form of a log. It has the fields that can be searched for.
type logSearch struct{ url.Values }

// maxWords bounds a field of the search.
const maxWords = 200

// readWords returns the search text of a parameter, or "" if it is too long or contains a zero byte.
func readWords(query url.Values, name string) string {
	text := spelling.Pasted(strings.ToValidUTF8(query.Get(name), ""))
	if len(text) > maxWords || strings.ContainsRune(text, 0) {
		return ""
	}
	return text
}

// readSearch reads the form of a log with these kinds of entries.
func readSearch(query url.Values, kinds []audit.Kind) logSearch {
	search := url.Values{
		"request":     {readWords(query, "request")},
		"person":      {readWords(query, "person")},
		"application": {readWords(query, "application")},
	}
	for _, day := range []string{"since", "until"} {
		if _, err := time.Parse(time.DateOnly, query.Get(day)); err == nil {
			search.Set(day, query.Get(day))
		}
	}
	if client, err := web.ParseID(query.Get("client")); err == nil {
		search.Set("client", client.String())
	}
	if slices.ContainsFunc(kinds, func(k audit.Kind) bool { return k.Name == query.Get("kind") }) {
		search.Set("kind", query.Get("kind"))
	}
	maps.DeleteFunc(search, func(_ string, values []string) bool { return values[0] == "" })
	return logSearch{search}
}

// Problem returns the error of the field “To”, or "".
func (l logSearch) Problem() string {
	if l.Has("since") && l.Has("until") && l.Get("since") > l.Get("until") { // as text, since both are YYYY-MM-DD
		return "“From” must not be later than “To”."
	}
	return ""
}

// Query returns the search as a part of a query, with its separator.
func (l logSearch) Query() string {
	if len(l.Values) == 0 {
		return ""
	}
	return "&" + l.Encode()
}

// forStore returns the search for the store. The last day is included.
func (l logSearch) forStore() audit.Search {
	out := audit.Search{
		RequestID:   l.Get("request"),
		Person:      l.Get("person"),
		Application: l.Get("application"),
		Kind:        l.Get("kind"),
	}
	out.Client, _ = web.ParseID(l.Get("client"))             // "" is the zero id
	out.Since, _ = time.Parse(time.DateOnly, l.Get("since")) // "" is the zero time
	if until, err := time.Parse(time.DateOnly, l.Get("until")); err == nil {
		out.Until = until.AddDate(0, 0, 1)
	}
	return out
}

// writeMark returns a position in a log as a parameter of its page.
func writeMark(m audit.Cursor) string {
	return url.QueryEscape(m.At.UTC().Format(time.RFC3339Nano) + "~" + m.ID.String())
}

// readMark parses a mark of writeMark. Other text is the beginning of the log.
func readMark(text string) audit.Cursor {
	at, id, _ := strings.Cut(text, "~")
	moment, atErr := time.Parse(time.RFC3339Nano, at)
	entry, idErr := web.ParseID(id)
	if atErr != nil || idErr != nil {
		return audit.Cursor{}
	}
	return audit.Cursor{At: moment, ID: entry}
}

// A workspaceLog is a log of one workspace, latest entry first, that can be searched and exported.
type workspaceLog[T any] struct {
	section  ui.Section // of its page
	read     func(context.Context, uuid.UUID, audit.Search, audit.Cursor, int) ([]T, error)
	atOnce   int                        // entries that the page reads at once
	most     int                        // and at most, for its pageSize lines
	lines    func([]T, logSearch) [][]T // divides entries into the lines of the page
	kinds    []audit.Kind               // of entries that can be searched for
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
	Kinds  []audit.Kind
	path   string
}

// Export returns the path of an export of the search.
func (l *logPage) Export(extension string) string {
	return l.path + "." + extension + "?tenant=" + l.Workspace.ID.String() + l.Search.Query()
}

// Latest returns the path of the first page of the search.
func (l *logPage) Latest() string { return l.All() + l.Search.Query() }

// All returns the path of the page without a search.
func (l *logPage) All() string { return l.path + "?tenant=" + l.Workspace.ID.String() }

// entries returns the lines of the page that the URL selects. A line with more than most entries continues on the next
// page.
func (w workspaceLog[T]) entries(r *request) (lines [][]T, out logPage, err error) {
	out = logPage{Search: readSearch(r.form, w.kinds), Kinds: w.kinds, path: w.section.Path()}
	from := readMark(r.form.Get("before"))
	out.Later = from != audit.Cursor{}
	var found []T
	more := true
	err = r.search(func() error {
		for more && len(lines) <= pageSize && len(found) < w.most {
			next, err := w.read(r.ctx(), r.here.Workspace.ID, out.Search.forStore(), from, w.atOnce)
			if err != nil {
				return err
			}
			found, more = append(found, next...), len(next) == w.atOnce
			if more {
				from = w.cursor(next[len(next)-1])
			}
			lines = w.lines(found, out.Search)
		}
		return nil
	})
	if len(lines) > pageSize {
		lines, more = lines[:pageSize], true
		last := lines[pageSize-1]
		from = w.cursor(last[len(last)-1])
	}
	if more && err == nil {
		out.Older = r.path(w.section) + out.Search.Query() + "&before=" + writeMark(from)
	}
	if out.Search.Problem() != "" {
		r.status = http.StatusBadRequest
	}
	return lines, out, err
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
		for lines, err = w.next(r, last); errors.Is(err, audit.ErrBusy) && time.Now().Before(end); {
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
	search := readSearch(r.form, w.kinds).forStore()
	err = r.LogReads.Do(r.ctx(), func() error {
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
	writer := csv.NewWriter(to)
	write := func(row []string) error {
		_ = writer.Write(row) // Flush reports an error
		writer.Flush()
		return writer.Error()
	}
	_, _ = io.WriteString(to, spreadsheet.ByteOrderMark) // a later write fails too
	_ = write(w.columns)
	return func(one T) error {
		row := w.cells(one)
		for i, text := range row {
			row[i] = spreadsheet.Cell(text)
		}
		return write(row)
	}
}

// Limits of the searches and exports of logs of one user in one process.
const (
	turnsPerUser = 2 // searches and exports of a user
	turnWait     = 3 * time.Second
	maxWaiting   = 8 // searches and exports of a user, running or waiting
)

// newTurns limits concurrent searches and exports of logs. An export counts towards the limit of its user until it
// ends. It counts towards Deps.LogReads only while it reads a page, so that a slow client does not delay others.
func newTurns() *inflight.Requests[uuid.UUID] {
	return inflight.New[uuid.UUID](inflight.Bounds{InFlight: maxWaiting, AtOnce: turnsPerUser, Wait: turnWait})
}

// logTurn runs serve, which searches or exports a log, once the user has fewer than turnsPerUser others running. It
// returns audit.ErrBusy if that takes longer than turnWait.
func (r *request) logTurn(serve func() error) error {
	return audit.InTurn(r.ctx(), r.turns, r.user.User.ID, serve)
}

// search runs read, which searches a whole log or list, within both limits.
func (r *request) search(read func() error) error {
	return r.logTurn(func() error { return r.LogReads.Do(r.ctx(), read) })
}
