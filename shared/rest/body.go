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
	"regexp"
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

// OptionalText returns the value if it is a string, or nil. It adds to problems if there is another value.
func (o Object) OptionalText(key string, problems Problems) *string {
	if !o.Has(key) {
		return nil
	}
	text, isText := o.Text(key)
	if !isText {
		problems[key] = "Must be a string."
		return nil
	}
	return &text
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

// The version of a record is its entity tag, which a read returns in ETag. A change with the tag in If-Match is
// refused if the record was changed in between (RFC 9110, section 13.1.1; contract, section 6). A read with the tag
// in If-None-Match returns 304 if nothing changed (section 13.1.2). An intermediary that compresses a response may make
// its tag weak, so a weak tag is the same as the strong one in both headers (contract, section 6a).

// Tag returns the entity tag of a version (RFC 9110, section 8.8.3).
func Tag(version int) string { return fmt.Sprintf(`"%d"`, version) }

// ErrStale is returned for a record at a version that the conditions exclude: it was changed since the caller read it.
var ErrStale = errors.New("the record was changed since it was read")

// Conditions are the preconditions of a request. The zero value has none.
type Conditions struct{ match, noneMatch *tags }

// tags are the tags of one header: any tag (*) or the listed ones.
type tags struct {
	any    bool
	listed []string
}

// ReadConditions reads If-Match and If-None-Match. The error is an *apierr.Error.
func ReadConditions(h http.Header) (c Conditions, err error) {
	if c.match, err = readTags(h, "If-Match"); err == nil {
		c.noneMatch, err = readTags(h, "If-None-Match")
	}
	return c, err
}

// readTags reads the tags of a header, weak ones as strong ones, or returns nil without the header. Empty elements are
// ignored, and tags may contain commas (sections 5.6.1.2 and 8.8.3).
func readTags(h http.Header, name string) (*tags, error) {
	values, given := h.Values(name), &tags{}
	if len(values) == 0 {
		return nil, nil
	}
	text := strings.Trim(strings.Join(values, ","), " \t")
	if text == "*" {
		return &tags{any: true}, nil
	}
	refusal := apierr.New(apierr.Invalid, name+` must be * or the ETag of a version, with its quotes, such as "3".`)
	for text = strings.Trim(text, " \t,"); text != ""; text = strings.TrimLeft(text, " \t,") {
		opaque := strings.TrimPrefix(text, "W/")
		if !strings.HasPrefix(opaque, `"`) {
			return nil, refusal
		}
		inside, rest, closed := strings.Cut(opaque[1:], `"`)
		after := strings.TrimLeft(rest, " \t")
		if !closed || (after != "" && after[0] != ',') {
			return nil, refusal
		}
		given.listed = append(given.listed, `"`+inside+`"`)
		text = after
	}
	if len(given.listed) == 0 {
		return nil, refusal
	}
	return given, nil
}

// HasMatch reports whether the request has If-Match.
func (c Conditions) HasMatch() bool { return c.match != nil }

// CheckChange returns ErrStale unless the conditions allow a change of the version.
func (c Conditions) CheckChange(version int) error { return c.CheckTag(Tag(version)) }

// CheckTag is CheckChange for the version with this entity tag.
func (c Conditions) CheckTag(tag string) error {
	if !c.matches(tag) || c.seen(tag) {
		return ErrStale
	}
	return nil
}

// ServeRead sets the entity tag of the version and calls serve to write the record. It writes 304 instead if the
// caller has the version, and returns ErrStale if If-Match excludes it.
func (c Conditions) ServeRead(w http.ResponseWriter, version int, serve func()) error {
	return c.ServeTag(w, Tag(version), serve)
}

// ServeTag is ServeRead for the version with this entity tag.
func (c Conditions) ServeTag(w http.ResponseWriter, tag string, serve func()) error {
	if !c.matches(tag) {
		return ErrStale
	}
	w.Header().Set("ETag", tag)
	if c.seen(tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	serve()
	return nil
}

// matches reports whether the version satisfies If-Match.
func (c Conditions) matches(tag string) bool {
	return c.match == nil || c.match.any || slices.Contains(c.match.listed, tag)
}

// seen reports whether If-None-Match names the version. Then a read need not return the record, and a change must be
// refused.
func (c Conditions) seen(tag string) bool {
	return c.noneMatch != nil && (c.noneMatch.any || slices.Contains(c.noneMatch.listed, tag))
}

// TimeLayout is the format of a time: RFC 3339 in UTC with six decimals, so that times also compare as text. Times must
// be in UTC.
const TimeLayout = "2006-01-02T15:04:05.000000Z07:00"

// A Time marshals in the format of FormatTime.
type Time time.Time

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, len(TimeLayout)+2), '"')
	return append(AppendTime(b, time.Time(t)), '"'), nil
}

// Scan implements sql.Scanner, for a time that is never null.
func (t *Time) Scan(value any) error {
	at, ok := value.(time.Time)
	if !ok {
		return fmt.Errorf("%T is not a time", value)
	}
	*t = Time(at)
	return nil
}

// TimePointer returns t as a *Time, or nil if t is nil.
func TimePointer(t *time.Time) *Time { return (*Time)(t) }

// FormatTime returns t in the JSON format.
func FormatTime(t time.Time) string { return string(AppendTime(nil, t)) }

// AppendTime appends the result of FormatTime.
func AppendTime(b []byte, t time.Time) []byte { return t.UTC().AppendFormat(b, TimeLayout) }

// ErrNotTime reports that a text is not an RFC 3339 time.
var ErrNotTime = errors.New("not a time as RFC 3339 writes it")

// TimeMessage explains ErrNotTime to a caller.
const TimeMessage = "Must be an RFC 3339 time, such as 2026-11-01T09:00:00.123456Z. In a query, encode the + of an " +
	"offset as %2B."

// timeShape is stricter than time.Parse.
var timeShape = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)

// ParseTime parses an RFC 3339 time. It rounds up to microseconds, so that no stored time before the given one is
// at or after the returned one. It never returns the zero time, which means none.
func ParseTime(text string) (time.Time, error) {
	text = strings.ToUpper(text) // t and z are allowed
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || !timeShape.MatchString(text) {
		return time.Time{}, ErrNotTime
	}
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}, ErrNotTime
	}
	whole := t.Truncate(time.Microsecond)
	if whole.Before(t) || whole.IsZero() {
		whole = whole.Add(time.Microsecond)
	}
	return whole, nil
}
