package mcp

import (
	"encoding/json"

	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/listpage"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// resultFrame is what the answer to one call needs besides its records.
const resultFrame = 4096

// A recordSink takes the programmes of a page as JSON, as long as the answer does not pass listpage.MaxBytes.
type recordSink struct {
	data  []json.RawMessage
	bytes int
	last  programme.Programme
	err   error
}

// Take is programme.Sink's.
func (s *recordSink) Take(p programme.Programme) bool {
	encoded, err := web.EncodeJSON(recordOf(p))
	if err != nil {
		s.err = err
		return false
	}
	size := sizeInResult(encoded)
	if len(s.data) > 0 && s.bytes+size+resultFrame > listpage.MaxBytes {
		return false
	}
	s.data, s.bytes, s.last = append(s.data, encoded), s.bytes+size, p
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
