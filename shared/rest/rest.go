// Package rest reads and answers the requests of a JSON API, for both services: bodies, query parameters, cursors,
// pages, preconditions, idempotent writes and refusals (spec 2.4; contract, sections 6 and 6a).
//
//	rest.go          bearer tokens, refusals, deprecated operations
//	body.go          bodies
//	query.go         query parameters and filters
//	cursor.go        cursors
//	page.go          pages that are encoded while their rows are read
//	collection.go    pages of lists that are short enough to be read as a whole
//	precondition.go  conditional requests
//	idempotency.go   writes that clients can repeat
//	table.go         the stored responses to such writes, in Postgres
//	time.go          times
package rest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/crypt/credential"
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

// DeprecationNotice is the shortest time between the first day of a notice and the day of the removal.
const DeprecationNotice = 180 * 24 * time.Hour

// A Deprecation is an operation of the API that will be removed. The headers of its responses announce that.
type Deprecation struct {
	Method string // in capitals
	Path   string // with {names} for parameters, as in the description
	Since  time.Time
	Sunset time.Time // the operation may be removed from this time on: at least DeprecationNotice after Since
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
