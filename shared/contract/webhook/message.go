package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// An Event is what a message says: that a record changed, and which one.
type Event struct {
	Type     string
	At       time.Time
	Data     json.RawMessage
	Sequence int64 // 0 of a test event
}

// TestEvent returns the event of a requested test.
func TestEvent(endpoint uuid.UUID, requested time.Time) Event {
	return Event{Type: TestType, At: requested, Data: json.RawMessage(`{"id":"` + endpoint.String() + `"}`)}
}

// Body returns the body of the request that sends the event.
func (e Event) Body(workspaceID uuid.UUID) ([]byte, error) {
	return web.EncodeJSON(struct {
		Type        string          `json:"type"`
		Timestamp   rest.Time       `json:"timestamp"`
		Data        json.RawMessage `json:"data"`
		WorkspaceID uuid.UUID       `json:"workspaceId"`
		Sequence    int64           `json:"sequence,omitempty"`
	}{e.Type, rest.Time(e.At), e.Data, workspaceID, e.Sequence})
}

// EventID returns the webhook-id of an event, the same each time that it is sent.
func EventID(workspaceID uuid.UUID, sequence int64) string {
	return fmt.Sprintf("evt_%s_%d", workspaceID, sequence)
}

// MessageID returns the webhook-id of the delivery.
func (d Delivery) MessageID(workspaceID uuid.UUID) string {
	if d.Sequence == nil {
		return "test_" + d.ID.String()
	}
	return EventID(workspaceID, *d.Sequence)
}

// A Header is a header of a request.
type Header struct{ Name, Value string }

// Headers returns the headers of the request with a message (Standard Webhooks).
func Headers(id string, sent time.Time, signature string) []Header {
	return []Header{
		{"Content-Type", "application/json"},
		{"User-Agent", "Almoner"},
		{"webhook-id", id},
		{"webhook-timestamp", strconv.FormatInt(sent.Unix(), 10)},
		{"webhook-signature", signature},
	}
}

// MaxResponse is how much of the body of a response is stored, in bytes.
const MaxResponse = 1 << 10

// Text returns the stored part of the body of a response for people to read. Bytes and characters that are no visible
// text, such as those that change the direction of writing, are shown as in Go source. escaped reports whether there
// are any.
func Text(body []byte) (text string, escaped bool) {
	cut := len(body) == MaxResponse
	var out strings.Builder
	for body = bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n")); len(body) > 0; {
		if cut && !utf8.FullRune(body) {
			break // the end of the part is within a character
		}
		r, size := utf8.DecodeRune(body)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, body[0])
			escaped = true
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			out.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
			escaped = true
		}
		body = body[size:]
	}
	return out.String(), escaped
}
