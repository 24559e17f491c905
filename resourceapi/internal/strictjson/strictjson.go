// Package strictjson answers: what did the caller send, to the letter?
//
// encoding/json takes a key given twice (the last wins), keys in another case, and text that is not UTF-8 or half a
// character, which it replaces without a word. Two readers of such a document can disagree about what it says, so it is
// refused here, at every depth (RFC 8259, sections 4 and 8; RFC 7493). Keys that nobody asks for are ignored.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/web"
)

// Read returns the body of r, at most limit bytes of it. It returns an *apierr.Error: TooLarge, or Invalid when the
// body did not arrive whole or is encoded.
func Read(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if web.Encoded(r.Header) {
		return nil, apierr.New(apierr.Invalid, web.EncodedWords)
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, apierr.New(apierr.TooLarge, "The request body is too large.")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, apierr.New(
			apierr.Invalid,
			"The request body did not arrive in time. Send it faster, or as several smaller ones.",
		)
	}
	if err != nil {
		return nil, apierr.New(apierr.Invalid, "The request body did not arrive whole.")
	}
	return content, nil
}

// ReadWithin is Read for a body that must arrive within the time, because what its reader holds is wanted by others.
func ReadWithin(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(within)); errors.Is(err, http.ErrNotSupported) {
		return Read(w, r, limit) // there is no connection to wait for
	} else if err != nil {
		return nil, fmt.Errorf("bound the time of a body: %w", err)
	}
	content, err := Read(w, r, limit)
	if err != nil {
		return nil, err // the deadline stays: what is left of the body is not waited for
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("end the time of a body: %w", err)
	}
	return content, nil
}

// CheckType returns an *apierr.Error unless the one Content-Type of the request is among types, with no charset but
// UTF-8.
func CheckType(h http.Header, types ...string) error {
	refusal := apierr.New(apierr.Invalid, "Send the body with Content-Type: "+strings.Join(types, " or ")+", in UTF-8.")
	values := h.Values("Content-Type")
	if len(values) != 1 {
		return refusal
	}
	mediaType, parameters, err := mime.ParseMediaType(values[0])
	if err != nil || !slices.Contains(types, mediaType) {
		return refusal
	}
	if charset, given := parameters["charset"]; given && !strings.EqualFold(charset, "utf-8") {
		return refusal
	}
	return nil
}

// An Object is a JSON object whose values are still to be read.
type Object map[string]json.RawMessage

// errNotObject carries no position: what was sent is the caller's, and no part of it is echoed.
var errNotObject = apierr.New(apierr.Invalid, "The body must be one JSON object in UTF-8, with each key at most once.")

// ReadObject reads one JSON object and nothing behind it. It returns an *apierr.Error.
func ReadObject(content []byte) (Object, error) {
	decoder := jsontext.NewDecoder(bytes.NewReader(content)) // refuses keys given twice and what is no UTF-8
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return nil, errNotObject
	}
	object := Object{}
	for decoder.PeekKind() != '}' {
		token, err := decoder.ReadToken()
		if err != nil {
			return nil, errNotObject
		}
		key := token.String() // before the next read, which takes its place
		value, err := decoder.ReadValue()
		if err != nil {
			return nil, errNotObject
		}
		object[key] = json.RawMessage(value.Clone())
	}
	if _, err := decoder.ReadToken(); err != nil { // the closing brace
		return nil, errNotObject
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errNotObject
	}
	return object, nil
}

// Has says whether the object has the key, be its value null.
func (o Object) Has(key string) bool { _, ok := o[key]; return ok }

// Null says whether the value is null.
func (o Object) Null(key string) bool { return string(o[key]) == "null" }

// Text returns the value if it is a string.
func (o Object) Text(key string) (string, bool) {
	var text string
	raw := o[key]
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return "", false
	}
	return text, true
}
