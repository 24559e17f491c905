// Package listpage encodes one page of a list while its rows are read, and ends the page before it grows too long.
//
// A record is encoded as soon as it is read, so a request holds the bytes of its answer and no records. What strangers
// sent in bounds neither the number of those bytes nor their spelling: MaxBytes does.
package listpage

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/almonerhq/almoner/shared/web"
)

// MaxBytes is the length that no answer of a list passes (contract, section 6).
const MaxBytes = 4_000_000

// frame is what an answer needs besides its records: meta, with a cursor in it.
const frame = 2048

// Chunks keep a long page from being copied whenever it grows.
const (
	chunkSize = 64 << 10
	fullChunk = chunkSize / 2
)

// freeBytes of each page take no room, so that pages of ordinary records are never cut short.
const freeBytes = 2 * chunkSize

var chunks = sync.Pool{New: func() any {
	b := make([]byte, 0, chunkSize)
	return &b
}}

// A Page is the JSON of one page, made of records of the type T. Use New.
type Page[T any] struct {
	encode func(b []byte, record T) ([]byte, error)
	full   []*[]byte // chunks that are written to no more
	chunk  *[]byte
	bytes  int // in full
	count  int
	last   T
	err    error

	room  func(bytes int) bool // nil: there is room
	ended bool                 // for lack of room
}

// New makes an empty page whose records encode appends to b.
func New[T any](encode func(b []byte, record T) ([]byte, error)) *Page[T] {
	return &Page[T]{encode: encode}
}

// Encoded makes an empty page of records that are encoded as what of makes of them.
func Encoded[T, R any](of func(T) R) *Page[T] {
	return New(func(b []byte, record T) ([]byte, error) {
		content, err := web.EncodeJSON(of(record))
		return append(b, content...), err
	})
}

// Within lets the page take its bytes of room, but for the first freeBytes, and end early where there is none.
func (p *Page[T]) Within(room func(bytes int) bool) *Page[T] {
	p.room = room
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
	if p.count > 0 && p.bytes+len(b)+frame > MaxBytes {
		*p.chunk = b[:before]
		return false
	}
	*p.chunk, p.last = b, record
	p.count++
	if len(b) >= fullChunk {
		p.full, p.bytes = append(p.full, p.chunk), p.bytes+len(b)
		p.chunk = chunks.Get().(*[]byte)
		*p.chunk = (*p.chunk)[:0]
		p.ended = p.room != nil && p.bytes > freeBytes && !p.room(len(b))
	}
	return true
}

// Last returns the record that was taken last.
func (p *Page[T]) Last() T { return p.last }

// Err returns the error of a record that could not be encoded.
func (p *Page[T]) Err() error { return p.err }

// Write answers with data and meta. meta.nextCursor is present only when more pages may follow (spec 2.4): next is ""
// where none do. The page must not be used afterwards.
func (p *Page[T]) Write(w http.ResponseWriter, next string) {
	if p.chunk == nil {
		b := []byte(`{"data":[`)
		p.chunk = &b
	}
	end := append(*p.chunk, `],"meta":{"count":`...)
	end = strconv.AppendInt(end, int64(p.count), 10)
	if next != "" {
		cursor, _ := web.EncodeJSON(next) // a string cannot fail
		end = append(append(end, `,"nextCursor":`...), cursor...)
	}
	*p.chunk = append(end, "}}\n"...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(p.bytes+len(*p.chunk)))
	w.WriteHeader(http.StatusOK)
	for _, chunk := range append(p.full, p.chunk) {
		if _, err := w.Write(*chunk); err != nil {
			return // the caller has left, which is no error of ours
		}
		if cap(*chunk) <= 2*chunkSize {
			chunks.Put(chunk)
		}
	}
	*p = Page[T]{}
}
