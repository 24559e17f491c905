package mcp

import (
	"encoding/json"

	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/listpage"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// resultFrame is what the answer to one call needs besides its records.
const resultFrame = 4096

// freeBytes of each result take no room, so that pages of ordinary records are never cut short.
const freeBytes = 128 << 10

// A recordSink takes the programmes of a page as JSON, as long as the answer does not pass listpage.MaxBytes.
type recordSink struct {
	data  []json.RawMessage
	bytes int
	last  programme.Programme
	err   error

	room  func(bytes int) bool
	ended bool // for lack of room
}

// copies is how often the SDK holds the records of a result on their way.
const copies = 5

// Take is programme.Sink's.
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
	s.ended = s.bytes > freeBytes && !s.room(copies*len(encoded))
	return true
}

// sizeInResult is how long JSON becomes as a part of a result, which holds it twice: structured, and as text, in which
// quotes and backslashes are escaped. The SDK writes six bytes for <, > and & on the way, so they count as such.
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
