package rest

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Cursors seals and opens the cursors that continue lists. It is safe for concurrent use.
type Cursors struct{ *seal.Box }

// NewCursors derives the key of the cursors from the service's keys. Cursors of another purpose cannot be opened.
func NewCursors(keys seal.Keys, purpose string) (*Cursors, error) {
	box, err := seal.NewBox(keys, purpose)
	if err != nil {
		return nil, err
	}
	return &Cursors{box}, nil
}

// otherCursor is the message for a text that is not a cursor of the list.
const otherCursor = "Must be a meta.nextCursor of the same list."

// A Position is the position of a record in its list.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
	Until     time.Time // the End.Until of the first page
}

// PositionLength is the number of bytes that Append appends.
const PositionLength = 8 + 16

// Append appends the time, in microseconds, and the id.
func (p Position) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(p.CreatedAt.UnixMicro()))
	return append(b, p.ID[:]...)
}

// ParsePosition returns the position that Append appended.
func ParsePosition(content []byte) Position {
	return Position{CreatedAt: ParseMicros(content), ID: uuid.UUID(content[8:PositionLength])}
}

// ParseMicros returns the time in the first 8 bytes of content.
func ParseMicros(content []byte) time.Time {
	return time.UnixMicro(int64(binary.BigEndian.Uint64(content))).UTC()
}

// SealPosition returns the cursor that continues the list after the position. list names the list and its workspace.
func (c *Cursors) SealPosition(list string, position Position) string {
	content := position.Append(nil)
	if !position.Until.IsZero() { // in a list with UpdatedSince
		list = FormatTime(position.Until) + " " + list
	}
	return c.Seal(append(content, list...))
}

func (c *Cursors) open(r Range, text string) (position Position, ok bool) {
	content, err := c.Open(text)
	if err != nil || len(content) < PositionLength {
		return Position{}, false
	}
	position, list := ParsePosition(content), string(content[PositionLength:])
	if !r.UpdatedSince.IsZero() {
		until, name, _ := strings.Cut(list, " ")
		if position.Until, err = time.Parse(TimeLayout, until); err != nil {
			return Position{}, false
		}
		list = name
	}
	return position, list == r.List
}

// MaxPageBytes is the maximum length of a list response (contract, section 6).
const MaxPageBytes = 4_000_000

// frame is the size reserved for everything but the records: meta with a cursor.
const frame = 2048

// A long page is stored in chunks, so that it is not copied when it grows.
const (
	chunkSize = 64 << 10
	fullChunk = chunkSize / 2
)

// freeBytes of each page are not reserved, so that pages of ordinary records are never cut short.
const freeBytes = 2 * chunkSize

var chunks = sync.Pool{New: func() any {
	b := make([]byte, 0, chunkSize)
	return &b
}}

// A Page is the JSON of one page of records of type T. It ends before it gets too long. A record is encoded as soon as
// it is read, so a request holds the bytes of its response but no records. User input limits neither the number nor the
// encoding of those bytes; MaxPageBytes does. Use NewPage.
type Page[T any] struct {
	encode func(b []byte, record T) ([]byte, error)
	full   []*[]byte // chunks that are complete
	chunk  *[]byte
	bytes  int // in full
	count  int
	last   T
	err    error

	reserve func(bytes int) bool // nil if unlimited
	ended   bool                 // no room was left
}

// NewPage returns an empty page. encode appends one record. The page contains only the members in fields, or all if
// fields is nil. It reserves its bytes, except for the first freeBytes, with reserve, and ends early if that returns
// false; reserve may be nil.
func NewPage[T any](
	encode func(b []byte, record T) ([]byte, error), fields []string, reserve func(bytes int) bool,
) *Page[T] {
	if fields == nil {
		return &Page[T]{encode: encode, reserve: reserve}
	}
	return &Page[T]{reserve: reserve, encode: func(b []byte, record T) ([]byte, error) {
		encoded, err := encode(nil, record)
		if err != nil {
			return b, err
		}
		return Project(b, encoded, fields)
	}}
}

// NewJSONPage is NewPage for records that are converted by of and encoded as JSON.
func NewJSONPage[T, R any](of func(T) R, fields []string, reserve func(bytes int) bool) *Page[T] {
	return NewPage(func(b []byte, record T) ([]byte, error) {
		content, err := web.EncodeJSON(of(record))
		return append(b, content...), err
	}, fields, reserve)
}

// Take adds a record, and reports whether it had room. A record without room begins the next page. The first record
// always has room, so that every page makes progress.
func (p *Page[T]) Take(record T) bool {
	if p.ended {
		return false
	}
	if p.chunk == nil {
		p.chunk = chunks.Get().(*[]byte)
		*p.chunk = append((*p.chunk)[:0], `{"data":[`...)
	}
	b := *p.chunk
	before := len(b)
	if p.count > 0 {
		b = append(b, ',')
	}
	b, err := p.encode(b, record)
	if err != nil {
		p.err = err
		return false
	}
	if p.count > 0 && p.bytes+len(b)+frame > MaxPageBytes {
		*p.chunk = b[:before]
		return false
	}
	*p.chunk, p.last = b, record
	p.count++
	if len(b) >= fullChunk {
		p.full, p.bytes = append(p.full, p.chunk), p.bytes+len(b)
		p.chunk = chunks.Get().(*[]byte)
		*p.chunk = (*p.chunk)[:0]
		p.ended = p.reserve != nil && p.bytes > freeBytes && !p.reserve(len(b))
	}
	return true
}

// Last returns the last record taken.
func (p *Page[T]) Last() T { return p.last }

// Err returns the error of a record that could not be encoded.
func (p *Page[T]) Err() error { return p.err }

// Write writes data and meta. meta.nextCursor is present only if more pages may follow (spec 2.4); next is "" if none
// do. It records the number of records for the counter of requests. The page must not be used afterwards.
func (p *Page[T]) Write(w http.ResponseWriter, r *http.Request, next string) {
	web.AddRecords(r.Context(), p.count)
	if p.chunk == nil {
		b := []byte(`{"data":[`)
		p.chunk = &b
	}
	end := append(*p.chunk, `],"meta":{"count":`...)
	end = strconv.AppendInt(end, int64(p.count), 10)
	if next != "" {
		cursor, _ := web.EncodeJSON(next) // encoding a string cannot fail
		end = append(append(end, `,"nextCursor":`...), cursor...)
	}
	*p.chunk = append(end, "}}\n"...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(p.bytes+len(*p.chunk)))
	w.WriteHeader(http.StatusOK)
	for _, chunk := range append(p.full, p.chunk) {
		if _, err := w.Write(*chunk); err != nil {
			return // a client that disconnected is not an error
		}
		if cap(*chunk) <= 2*chunkSize {
			chunks.Put(chunk)
		}
	}
	*p = Page[T]{}
}

// A Collection describes a list of records of type T, which are shown as R. Unless Read is set, it is short enough to
// be read as a whole, and a page is cut out of it.
type Collection[T, R any] struct {
	// Name identifies the list in its cursors. Each list has its own.
	Name string
	// Omitted are members of R that lists never have.
	Omitted []string
	// Key returns the position of a record, which no other has. The list is in the order of the keys, byte by byte.
	Key func(T) string
	// Read, if set, returns up to limit records after a key, or the first ones after "", and the keys need not be in
	// order.
	Read func(after string, limit int) ([]T, error)
	// Show returns the records of a page in their API form.
	Show func(page []T) ([]R, error)
}

// Each returns a Show that converts each record separately.
func Each[T, R any](show func(T) R) func([]T) ([]R, error) {
	return func(page []T) ([]R, error) {
		shown := make([]R, 0, len(page))
		for _, one := range page {
			shown = append(shown, show(one))
		}
		return shown, nil
	}
}

// NewestFirst returns the key of a record for a list that has the newest records first, ties by id.
func NewestFirst(created time.Time, id uuid.UUID) string {
	return fmt.Sprintf("%019d %s", math.MaxInt64-created.UnixMicro(), id)
}

// maxCursor is the length in characters above which a cursor is not opened.
const maxCursor = 2048

// Write writes the page that the query selects, of all or, if Read is set, of what Read returns. Its error is an
// *apierr.Error.
func (l Collection[T, R]) Write(
	w http.ResponseWriter, r *http.Request, c *Cursors, workspaceID uuid.UUID, all []T,
) error {
	p := ReadParameters(r.URL.RawQuery, "limit", "cursor", "fields")
	limit := p.Limit()
	fields := p.Fields(slices.DeleteFunc(FieldsOf[R](), func(name string) bool {
		return slices.Contains(l.Omitted, name)
	}))
	name := l.Name + " of " + workspaceID.String() + "\x00"
	text, continues := p.Text("cursor")
	after, opened := c.openKey(text, name)
	if continues && !opened {
		p.Problems["cursor"] = otherCursor
	}
	for _, name := range []string{"limit", "cursor", "fields"} {
		if message, invalid := p.Problems[name]; invalid {
			return apierr.New(apierr.Invalid, name+": "+message) // the flat shape has no fields
		}
	}
	if l.Read != nil {
		var err error
		if all, err = l.Read(after, limit+1); err != nil {
			return err
		}
	} else {
		slices.SortFunc(all, func(a, b T) int { return strings.Compare(l.Key(a), l.Key(b)) })
		all = slices.DeleteFunc(all, func(one T) bool { return continues && l.Key(one) <= after })
	}
	read := all[:min(limit, len(all))]
	shown, err := l.Show(read)
	if err != nil {
		return err
	}
	page := NewJSONPage(func(one R) R { return one }, fields, nil)
	for i, one := range shown {
		if !page.Take(one) {
			read = read[:i]
			break
		}
	}
	if err := page.Err(); err != nil {
		return fmt.Errorf("encode a record: %w", err)
	}
	next := ""
	if len(all) > len(read) {
		next = c.Seal([]byte(name + l.Key(read[len(read)-1])))
	}
	page.Write(w, r, next)
	return nil
}

// openKey returns the key that the cursor of the list holds.
func (c *Cursors) openKey(text, list string) (key string, ok bool) {
	if len(text) > maxCursor {
		return "", false
	}
	content, err := c.Open(text)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(content), list)
}
