package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/web"
)

// encoding/json accepts duplicate keys (the last wins), keys in another case, and invalid UTF-8 or lone surrogates,
// which it replaces silently. Two parsers of such a document can disagree, so it is refused here, at every depth (RFC
// 8259, sections 4 and 8; RFC 7493).
//
// Decoding ignores unknown keys. UnknownMembers and UnknownParameters find the names that a route does not know. If it
// ignored a misspelled name, a filter or an edit would mean something else, so the response names it (contract,
// section 6).

// ReadBody returns the body of r, of at most limit bytes. The error is an *apierr.Error: TooLarge, or Invalid if the
// body is incomplete or has a content encoding.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if web.Encoded(r.Header) {
		return nil, apierr.New(apierr.Invalid, web.EncodedWords)
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, apierr.New(apierr.TooLarge, "The request body is too large.")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, apierr.New(apierr.Invalid,
			"The request body did not arrive in time. Send it faster, or split it into smaller requests.")
	}
	if err != nil {
		return nil, apierr.New(apierr.Invalid, "The request body is incomplete.")
	}
	return content, nil
}

// ReadBodyWithin is ReadBody for a body that must arrive within the given time, because its reader holds a shared
// resource.
func ReadBodyWithin(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(within)); errors.Is(err, http.ErrNotSupported) {
		return ReadBody(w, r, limit) // there is no connection to wait for
	} else if err != nil {
		return nil, fmt.Errorf("bound the time of a body: %w", err)
	}
	content, err := ReadBody(w, r, limit)
	if err != nil {
		return nil, err // the deadline stays, so that the rest of the body is not awaited
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("end the time of a body: %w", err)
	}
	return content, nil
}

const maxAccountBody = 64 << 10 // of a request to the account endpoints

func readAccountBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAccountBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, apierr.New(apierr.TooLarge, "The body is larger than 64 KiB.")
	}
	if err != nil {
		return nil, apierr.New(apierr.Invalid, "The body could not be read.")
	}
	return content, nil
}

// ErrEmpty is returned for a request without a body.
var ErrEmpty = apierr.New(apierr.Invalid, "The body is empty.")

// ReadJSON reads the body of a request to the account endpoints, one JSON object, by the rules of JSON v2: member names
// match their case, and duplicates are refused. Unknown names are ignored. The error is an *apierr.Error.
func ReadJSON(w http.ResponseWriter, r *http.Request, into any) error {
	content, err := readAccountBody(w, r)
	if err != nil {
		return err
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	isObject := bytes.HasPrefix(bytes.TrimLeft(content, " \t\r\n"), []byte("{")) // null would leave into unchanged
	switch {
	case len(content) == 0:
		return ErrEmpty
	case err != nil || mediaType != "application/json":
		return apierr.New(apierr.Invalid, "Content-Type must be application/json.")
	case web.Encoded(r.Header):
		return apierr.New(apierr.Invalid, web.EncodedWords)
	case !isObject || jsonv2.Unmarshal(content, into) != nil:
		return apierr.New(apierr.Invalid,
			"The body must be one JSON object with the documented types and without duplicate keys.")
	}
	return nil
}

// CheckType returns an *apierr.Error unless the request has exactly one Content-Type, which is among types and has no
// charset other than UTF-8.
func CheckType(h http.Header, types ...string) error {
	refusal := apierr.New(apierr.Invalid, "Content-Type must be "+strings.Join(types, " or ")+", in UTF-8.")
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

// An Object is a JSON object with unparsed values.
type Object map[string]json.RawMessage

// errNotObject has no position, since no part of the request is echoed.
var errNotObject = apierr.New(apierr.Invalid, "The body must be one JSON object in UTF-8 without duplicate keys.")

// ParseBody reads a request body of one of the types as ParseObject does. The error is an *apierr.Error.
func ParseBody(h http.Header, content []byte, types ...string) (Object, error) {
	if err := CheckType(h, types...); err != nil {
		return nil, err
	}
	return ParseObject(content)
}

// ParseObject reads one JSON object without trailing data. The error is an *apierr.Error.
func ParseObject(content []byte) (object Object, err error) {
	// Duplicate keys and invalid UTF-8 are errors. null leaves object nil.
	if jsonv2.Unmarshal(content, &object) != nil || object == nil {
		return nil, errNotObject
	}
	return object, nil
}

// Has reports whether the object has the key, even if its value is null.
func (o Object) Has(key string) bool { _, ok := o[key]; return ok }

// Null reports whether the value is null.
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

// Flag returns the value if it is a boolean, or nil. It adds to problems if there is another value.
func (o Object) Flag(key string, problems Problems) *bool {
	switch string(o[key]) {
	case "":
		return nil
	case "true", "false":
		return new(string(o[key]) == "true")
	}
	problems[key] = "Must be true or false."
	return nil
}

// Limits of what a response repeats of a request.
const (
	maxNames = 10
	maxName  = 64 // characters
)

// UnknownMembers returns a message for each member that is not among known, by its name.
func UnknownMembers(object Object, known ...string) Problems {
	return messages(slices.Collect(maps.Keys(object)), known, "Unknown member.")
}

// UnknownParameters returns an *apierr.Error that names the parameters of a query string that are not among known, or
// nil.
func UnknownParameters(raw string, known ...string) error {
	var names []string
	for pair := range strings.SplitSeq(raw, "&") {
		key, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil {
			name = key // not a known name, since it contains a percent sign
		}
		if pair != "" {
			names = append(names, name)
		}
	}
	fields := messages(names, known, "Unknown query parameter.")
	if len(fields) == 0 {
		return nil
	}
	return &apierr.Error{
		Kind:    apierr.Invalid,
		Message: "The request has unknown query parameters. error.fields names them.",
		Fields:  fields,
	}
}

func messages(names, known []string, message string) Problems {
	found := Problems{}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains(known, name) && len(found) < maxNames {
			found[shown(name)] = message
		}
	}
	return found
}

// shown returns a name for a response: short, and without invisible characters.
func shown(name string) string {
	name = shorten(name)
	if quoted := strconv.QuoteToGraphic(name); quoted != `"`+name+`"` || name == "" {
		return quoted
	}
	return name
}

// shorten returns at most maxName characters of a name.
func shorten(name string) string {
	if utf8.RuneCountInString(name) > maxName {
		return string([]rune(name)[:maxName]) + "…"
	}
	return name
}
