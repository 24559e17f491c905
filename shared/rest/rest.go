// Package rest reads and answers the requests of a JSON API, for both services: bodies, query parameters, cursors,
// pages, preconditions, idempotent writes and refusals (spec 2.4; contract, sections 6 and 6a).
//
//	rest.go         bearer tokens, refusals, the router and deprecated operations, query parameters
//	body.go         bodies, conditional requests, times
//	page.go         cursors; pages that are encoded while their rows are read, and pages of short lists
//	idempotency.go  writes that clients can repeat, and the answers to them, in Postgres
package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Errors of BearerToken. The response to ErrMalformedToken names an error; the response to ErrNoToken does not (RFC
// 6750, section 3). ErrEmptyToken wraps ErrNoToken.
var (
	ErrNoToken        = errors.New("no bearer token")
	ErrEmptyToken     = fmt.Errorf("%w: an empty one", ErrNoToken)
	ErrMalformedToken = errors.New("not one bearer token")
)

// tokenCharacters are those of a b64token, without the "=" at its end.
const tokenCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/"

// BearerToken returns the token of the single Authorization header (RFC 6750, section 2.1): the scheme in any case, one
// or more spaces, and one b64token. It returns ErrNoToken, ErrEmptyToken or ErrMalformedToken. No other code reads
// tokens from a request.
func BearerToken(h http.Header) (credential.Secret, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", ErrNoToken
	}
	if len(values) > 1 {
		return "", ErrMalformedToken
	}
	scheme, rest, _ := strings.Cut(values[0], " ")
	token := strings.TrimLeft(rest, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", ErrNoToken
	}
	if token == "" {
		return "", ErrEmptyToken
	}
	if strings.Trim(strings.TrimRight(token, "="), tokenCharacters) != "" {
		return "", ErrMalformedToken
	}
	return credential.Secret(token), nil
}

// Problems is the error of a request with invalid fields or parameters: messages for the user, by the name of the field
// or parameter. The domain returns it from its checks, and endpoints answer it with status 400 and error.fields.
type Problems map[string]string

// Error returns a text without the messages, which may repeat what the user wrote.
func (p Problems) Error() string { return "invalid fields" }

// OrNil returns nil instead of a non-nil error that holds an empty map.
func (p Problems) OrNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// Note adds a message, unless it is "".
func (p Problems) Note(name, message string) {
	if message != "" {
		p[name] = message
	}
}

// Join adds the messages of err, if it is a Problems, and returns p or nil. Existing messages are not replaced.
func (p Problems) Join(err error) error {
	if more, ok := err.(Problems); ok {
		for name, message := range more {
			if _, exists := p[name]; !exists {
				p[name] = message
			}
		}
	}
	return p.OrNil()
}

// Lines returns the messages, each after its name, in the order of the names.
func (p Problems) Lines() []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		lines = append(lines, name+": "+p[name])
	}
	return lines
}

// Refusals are the errors of a module's domain with the API error for each.
type Refusals []Refusal

// A Refusal is the API error for one error of the domain.
type Refusal struct {
	Err error
	As  *apierr.Error
}

// Of returns the API error for err. An error that is not listed passes unchanged.
func (r Refusals) Of(err error) error {
	if problems, ok := errors.AsType[Problems](err); ok {
		return &apierr.Error{
			Kind:    apierr.Invalid,
			Message: "The request is not valid. error.fields says what to correct.",
			Fields:  problems,
		}
	}
	for _, one := range r {
		if errors.Is(err, one.Err) {
			return one.As
		}
	}
	return err
}

// A Deprecation is an operation of the API that will be removed. The headers of its responses announce that.
type Deprecation struct {
	Method string // in capitals
	Path   string // with {names} for parameters, as in the description
	Since  time.Time
	Sunset time.Time // the operation may be removed from this time on: at least 180 days after Since
	Link   string    // URL of a page that says what to use instead
}

// Deprecations lists deprecated operations.
type Deprecations []Deprecation

// Deprecated returns the deprecated operations of this version, for both services. TestDeprecated_MatchesDescription in
// shared/contract/openapi compares them with the description.
func Deprecated() Deprecations { return nil }

// Announce sets the headers of a response to an operation: Deprecation (RFC 9745), Sunset (RFC 8594) and Link, if it is
// deprecated. path is the pattern of the route. HEAD counts as GET.
func (d Deprecations) Announce(h http.Header, method, path string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, one := range d {
		if one.Method != method || one.Path != path {
			continue
		}
		h.Set("Deprecation", fmt.Sprintf("@%d", one.Since.Unix()))
		h.Set("Sunset", one.Sunset.UTC().Format(http.TimeFormat))
		h.Add("Link", "<"+one.Link+`>; rel="deprecation"; type="text/html"`)
	}
}

// NewRouter returns a router without routes. A path must match byte by byte: other spellings are neither cleaned nor
// redirected. For each request, it records the pattern of the matched route for logs and metrics, announces deprecated
// operations, and sets the path values, so that endpoints do not depend on the router.
func NewRouter(deprecated Deprecations) *mux.Router {
	router := mux.NewRouter().UseEncodedPath().SkipClean(true)
	router.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if pattern, err := mux.CurrentRoute(r).GetPathTemplate(); err == nil {
				web.RecordRoute(r.Context(), pattern)
				deprecated.Announce(w.Header(), r.Method, pattern)
			}
			for name, value := range mux.Vars(r) {
				r.SetPathValue(name, value)
			}
			next.ServeHTTP(w, r)
		})
	})
	return router
}

// Page sizes of every list (spec 8).
const (
	DefaultLimit = 50
	MaxLimit     = 200
)

// Parameters are the query parameters of a request, and the problems with them.
type Parameters struct {
	values   map[string]string
	Problems Problems
}

// ReadParameters reads the named parameters of a query string. net/url drops what it cannot parse, which would remove
// an invalid filter; here that is a problem, and so is a repeated name.
func ReadParameters(raw string, names ...string) Parameters {
	p := Parameters{values: map[string]string{}, Problems: Problems{}}
	for pair := range strings.SplitSeq(raw, "&") {
		key, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil || !slices.Contains(names, name) {
			continue
		}
		text, err := url.QueryUnescape(value)
		if err != nil {
			p.Problems[name] = "Must be URL-encoded."
		}
		if _, twice := p.values[name]; twice {
			p.Problems[name] = "Must be sent only once."
		}
		p.values[name] = text
	}
	return p
}

// Text returns a parameter, and whether it was sent.
func (p Parameters) Text(name string) (text string, given bool) {
	text, given = p.values[name]
	return text, given
}

// Time returns a parameter that is a time, or the zero time without it.
func (p Parameters) Time(name string) time.Time {
	text, given := p.values[name]
	if !given {
		return time.Time{}
	}
	t, err := ParseTime(text)
	if err != nil {
		p.Problems[name] = TimeMessage
	}
	return t
}

// Limit returns the parameter limit, or DefaultLimit without it.
func (p Parameters) Limit() int {
	text, given := p.values["limit"]
	if !given {
		return DefaultLimit
	}
	limit, _ := strconv.ParseUint(text, 10, 64) // the largest number for larger ones
	if limit == 0 || strings.Trim(text, "0123456789") != "" {
		p.Problems["limit"] = "Must be an integer of at least 1. Values over 200 count as 200."
	}
	return int(min(limit, MaxLimit))
}

// Fields returns the members of the records that the parameter fields asks for, in the order of known, or nil for all.
func (p Parameters) Fields(known []string) []string {
	text, given := p.values["fields"]
	if !given {
		return nil
	}
	asked := strings.Split(text, ",")
	for _, name := range asked {
		if !slices.Contains(known, name) {
			p.Problems["fields"] = "Unknown field " + strconv.QuoteToGraphic(shorten(name)) + ". The fields are: " +
				strings.Join(known, ", ") + "."
			return nil
		}
	}
	return slices.DeleteFunc(slices.Clone(known), func(name string) bool { return !slices.Contains(asked, name) })
}

// FieldsOf returns the names of the JSON members of a struct, in order. Fields with the tag json:"-" are left out.
func FieldsOf[T any]() []string {
	var names []string
	for field := range reflect.TypeFor[T]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// Project appends the JSON object record with the members that are in fields alone.
func Project(b, record []byte, fields []string) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(record, &members); err != nil {
		return b, err
	}
	b = append(b, '{')
	for _, name := range fields {
		value, has := members[name]
		if !has {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, name)
		b = append(append(b, ':'), value...)
	}
	return append(b, '}'), nil
}

// Filters are the filters that a list supports.
type Filters struct {
	Updated  bool     // updatedSince
	Statuses []string // values of status; none if empty
	Created  bool     // createdSince and createdBefore
}

// names returns the query parameters of the filters.
func (f Filters) names() []string {
	var names []string
	if f.Updated {
		names = append(names, "updatedSince")
	}
	if len(f.Statuses) > 0 {
		names = append(names, "status")
	}
	if f.Created {
		names = append(names, "createdSince", "createdBefore")
	}
	return names
}

func (f Filters) read(p Parameters) Filter {
	status, given := p.Text("status")
	if given && !slices.Contains(f.Statuses, status) {
		p.Problems["status"] = "Must be one of: " + strings.Join(f.Statuses, ", ") + "."
	}
	return Filter{
		UpdatedSince:  p.Time("updatedSince"),
		Status:        status,
		CreatedSince:  p.Time("createdSince"),
		CreatedBefore: p.Time("createdBefore"),
	}
}

// A Filter narrows a list. The zero value matches every record.
type Filter struct {
	UpdatedSince  time.Time // created or changed at this time or later
	Status        string
	CreatedSince  time.Time // created at this time or later
	CreatedBefore time.Time
}

// suffix returns text that is added to the name of the list in a cursor. A cursor is valid only with the same filter.
func (f Filter) suffix() string {
	suffix := ""
	if !f.UpdatedSince.IsZero() {
		suffix += " since " + FormatTime(f.UpdatedSince)
	}
	if f.Status != "" {
		suffix += " with status " + f.Status
	}
	if !f.CreatedSince.IsZero() {
		suffix += " created since " + FormatTime(f.CreatedSince)
	}
	if !f.CreatedBefore.IsZero() {
		suffix += " created before " + FormatTime(f.CreatedBefore)
	}
	return suffix
}

// ReadFilter parses the filters of a query string. It refuses parameters that are neither these nor in others. The
// error is a Problems or an *apierr.Error.
func ReadFilter(raw string, filters Filters, others ...string) (Filter, error) {
	if err := UnknownParameters(raw, append(filters.names(), others...)...); err != nil {
		return Filter{}, err
	}
	p := ReadParameters(raw, filters.names()...)
	f := filters.read(p)
	return f, p.Problems.OrNil()
}

// A Range selects one page of a list that is in the order of creation, newest first, ties by id (spec 2.4; contract,
// section 6).
type Range struct {
	List   string    // name of the list, its filter included; passed to Cursors.SealPosition
	After  *Position // nil for the first page
	Limit  int       // 1 to MaxLimit
	Fields []string  // members of the records to return; nil for all
	Filter
}

// An End describes one page without its records.
type End struct {
	More bool // more may follow
	// Until is the newest time that could be read with the first page of a list with UpdatedSince, and zero in other
	// lists. Later changes are left out of the following pages.
	Until time.Time
}

// ReadRange parses cursor, limit, fields and the filters in a query string. Each may appear at most once. It refuses
// parameters that are neither these nor in others. fields are the members of the records. The error is a Problems or an
// *apierr.Error.
func ReadRange(raw, list string, cursors *Cursors, fields []string, filters Filters, others ...string) (Range, error) {
	names := append([]string{"cursor", "limit", "fields"}, filters.names()...)
	if err := UnknownParameters(raw, append(others, names...)...); err != nil {
		return Range{}, err
	}
	p := ReadParameters(raw, names...)
	r := Range{List: list, Limit: p.Limit(), Fields: p.Fields(fields), Filter: filters.read(p)}
	r.List += r.suffix()
	// A cursor is bound to its filter, so it is opened only if the filter is valid.
	if text, given := p.Text("cursor"); given && len(p.Problems) == 0 {
		position, opened := cursors.open(r, text)
		if !opened {
			p.Problems["cursor"] = otherCursor
		}
		r.After = &position
	}
	return r, p.Problems.OrNil()
}
