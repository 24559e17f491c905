// Package apierr defines the errors that API callers receive.
//
// The kind belongs to the error, the shape belongs to the route (spec 7.1). A handler returns an *Error and
// the route writes it in its shape. An error that is not an *Error is internal: the caller learns nothing
// about it.
package apierr

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/shared/net/web"
)

// A Kind classifies an error independently of the route. It determines the HTTP status.
type Kind int

// The kinds (spec 7.2).
const (
	Internal Kind = iota
	Invalid
	Unauthenticated
	Forbidden
	NotFound
	MethodNotAllowed
	Conflict
	PreconditionFailed
	PreconditionRequired
	TooLarge
	TooExpensive
	RateLimited
	NotProvisioned
	Unavailable
)

var kinds = map[Kind]struct {
	status int
	code   string // of the nested shape
	flat   string // of the flat shape
}{
	Internal:             {http.StatusInternalServerError, "INTERNAL", "server_error"},
	Invalid:              {http.StatusBadRequest, "VALIDATION_ERROR", "invalid_request"},
	Unauthenticated:      {http.StatusUnauthorized, "UNAUTHENTICATED", "invalid_token"},
	Forbidden:            {http.StatusForbidden, "FORBIDDEN", "access_denied"},
	NotFound:             {http.StatusNotFound, "NOT_FOUND", "not_found"},
	MethodNotAllowed:     {http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "method_not_allowed"},
	Conflict:             {http.StatusConflict, "CONFLICT", "conflict"},
	PreconditionFailed:   {http.StatusPreconditionFailed, "PRECONDITION_FAILED", "precondition_failed"},
	PreconditionRequired: {http.StatusPreconditionRequired, "PRECONDITION_REQUIRED", "precondition_required"},
	TooLarge:             {http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "invalid_request"},
	TooExpensive:         {http.StatusUnprocessableEntity, "QUERY_TOO_EXPENSIVE", "query_too_expensive"},
	RateLimited:          {http.StatusTooManyRequests, "RATE_LIMITED", "rate_limited"},
	NotProvisioned:       {http.StatusServiceUnavailable, "TENANT_NOT_PROVISIONED", "not_provisioned"},
	Unavailable:          {http.StatusServiceUnavailable, "UNAVAILABLE", "temporarily_unavailable"},
}

// An Error is an error response. Message is for people, says what to do if that is known, and never echoes
// input.
type Error struct {
	Kind       Kind
	Code       string            // overrides the kind's code in the written shape
	Message    string            // plain words
	Fields     map[string]string // name → message, nested shape only
	RetryAfter int               // seconds; 0 for the kind's default
	Cause      error             // for the log, never in the response
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// New makes an error of the kind with its default code.
func New(kind Kind, message string) *Error { return &Error{Kind: kind, Message: message} }

// Of returns err as an *Error. Any other error becomes Internal with err as its cause.
func Of(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{
		Kind:    Internal,
		Message: "Something went wrong on our side. Report it with the request id.",
		Cause:   err,
	}
}

// Status returns the HTTP status of the error.
func (e *Error) Status() int { return kinds[e.Kind].status }

// SayWhen sets Retry-After if retrying may help.
func (e *Error) SayWhen(h http.Header) {
	retry := e.RetryAfter
	if retry == 0 && e.Kind == Unavailable {
		retry = 2
	}
	if retry > 0 {
		h.Set("Retry-After", strconv.Itoa(retry))
	}
}

// CodeHeader is the header with the code of an error of any shape. The shape {"message"} contains no code.
const CodeHeader = "X-Error-Code"

// StableCode returns the code of the error for CodeHeader: the code of the nested shape, or an OAuth code in capitals.
func (e *Error) StableCode() string {
	if e.Code != "" {
		return strings.ToUpper(e.Code)
	}
	return kinds[e.Kind].code
}

// A Shape writes an error's body (spec 7.1).
type Shape func(*Error) any

// Nested is {"error":{"code","message"}}, the shape of module endpoints.
func Nested(e *Error) any { return map[string]Detail{"error": e.Detail()} }

// A Detail is the value of error in the nested shape.
type Detail struct {
	Code    string            `json:"code"`
	Message string            `json:"message"`
	Fields  map[string]string `json:"fields,omitempty"`
}

// Detail returns the error for the nested shape.
func (e *Error) Detail() Detail {
	return Detail{cmp.Or(e.Code, kinds[e.Kind].code), e.Message, e.Fields}
}

// Flat is {"error","error_description"}, the shape of Account endpoints and OAuth errors (RFC 6749, section
// 5.2).
func Flat(e *Error) any {
	return struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}{cmp.Or(e.Code, kinds[e.Kind].flat), e.Message}
}

// Gateway is {"message"}, the shape of failures of the Account authorizer.
func Gateway(e *Error) any { return map[string]string{"message": e.Message} }

// Write writes the error in the shape. The caller sets the headers that the route needs (WWW-Authenticate,
// Allow) first.
func Write(w http.ResponseWriter, shape Shape, e *Error) {
	e.SayWhen(w.Header())
	w.Header().Set(CodeHeader, e.StableCode())
	web.JSON(w, e.Status(), shape(e))
}
