package rest

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/almonerhq/almoner/shared/net/web"
)

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

// NewPage returns an empty page whose records are appended by encode.
func NewPage[T any](encode func(b []byte, record T) ([]byte, error)) *Page[T] {
	return &Page[T]{encode: encode}
}

// NewJSONPage returns an empty page whose records are converted by of and encoded as JSON.
func NewJSONPage[T, R any](of func(T) R) *Page[T] {
	return NewPage(func(b []byte, record T) ([]byte, error) {
		content, err := web.EncodeJSON(of(record))
		return append(b, content...), err
	})
}

// Reserving makes the page reserve its bytes, except for the first freeBytes, with reserve, and end early if that
// returns false.
func (p *Page[T]) Reserving(reserve func(bytes int) bool) *Page[T] {
	p.reserve = reserve
	return p
}

// Only makes the page contain only these members of its records, or all members if fields is nil.
func (p *Page[T]) Only(fields []string) *Page[T] {
	if fields == nil {
		return p
	}
	whole := p.encode
	p.encode = func(b []byte, record T) ([]byte, error) {
		encoded, err := whole(nil, record)
		if err != nil {
			return b, err
		}
		return Project(b, encoded, fields)
	}
	return p
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
// do. The page must not be used afterwards.
func (p *Page[T]) Write(w http.ResponseWriter, next string) {
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
