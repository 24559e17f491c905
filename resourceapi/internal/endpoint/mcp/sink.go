package mcp

import (
	"encoding/json"

	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/listpage"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// resultFrame is the size of an answer to one call without its records.
const resultFrame = 4096

// freeBytes of each result are not reserved, so that pages of ordinary records are never cut short.
const freeBytes = 128 << 10

// A recordSink collects the programmes of a page as JSON until the answer reaches listpage.MaxBytes.
type recordSink struct {
	data  []json.RawMessage
	bytes int
	last  programme.Programme
	err   error

	reserve func(bytes int) bool
	ended   bool // no room was left
}

// copies is how many copies of the records the SDK holds while it sends a result.
const copies = 5

// Take implements programme.Sink.
func (s *recordSink) Take(p programme.Programme) bool {
	encoded, err := web.EncodeJSON(recordOf(p))
	if err != nil {
		s.err = err
		return false
	}
	size := sizeInResult(encoded)
	if s.ended {
		return false
	}
	if len(s.data) > 0 && s.bytes+size+resultFrame > listpage.MaxBytes {
		return false
	}
	s.data, s.bytes, s.last = append(s.data, encoded), s.bytes+size, p
	s.ended = s.bytes > freeBytes && !s.reserve(copies*len(encoded))
	return true
}

// sizeInResult returns the size of encoded within a result, which contains it twice: structured, and as text with
// escaped quotes and backslashes. <, > and & count six bytes each, as the SDK writes them.
func sizeInResult(encoded []byte) int {
	size := 2 * (len(encoded) + len(","))
	for _, c := range encoded {
		switch c {
		case '"', '\\':
			size++
		case '<', '>', '&':
			size += 2 * (len(`\u003c`) - 1)
		}
	}
	return size
}
