// Package apierr answers: what does a caller read when something went wrong?
//
// The kind belongs to the error, the shape belongs to the route (spec 7.1). A handler answers with an *Error; the
// route writes it in its shape. An error that is no *Error is internal: it says nothing to the caller.
package apierr

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/almonerhq/almoner/shared/web"
)

// A Kind is what went wrong, independent of the route; it fixes the HTTP status.
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
	Internal:           {http.StatusInternalServerError, "INTERNAL", "server_error"},
	Invalid:            {http.StatusBadRequest, "VALIDATION_ERROR", "invalid_request"},
	Unauthenticated:    {http.StatusUnauthorized, "UNAUTHENTICATED", "invalid_token"},
	Forbidden:          {http.StatusForbidden, "FORBIDDEN", "access_denied"},
	NotFound:           {http.StatusNotFound, "NOT_FOUND", "not_found"},
	MethodNotAllowed:   {http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "method_not_allowed"},
	Conflict:           {http.StatusConflict, "CONFLICT", "conflict"},
	PreconditionFailed: {http.StatusPreconditionFailed, "PRECONDITION_FAILED", "precondition_failed"},
	TooLarge:           {http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "invalid_request"},
	TooExpensive:       {http.StatusUnprocessableEntity, "QUERY_TOO_EXPENSIVE", "query_too_expensive"},
	RateLimited:        {http.StatusTooManyRequests, "RATE_LIMITED", "rate_limited"},
	NotProvisioned:     {http.StatusServiceUnavailable, "TENANT_NOT_PROVISIONED", "not_provisioned"},
	Unavailable:        {http.StatusServiceUnavailable, "UNAVAILABLE", "temporarily_unavailable"},
}

// An Error is an answer to a caller. Message is for a person, says what to do where that is known, and echoes no input.
type Error struct {
	Kind       Kind
	Code       string            // overrides the kind's code of the shape that is written
	Message    string            // plain words
	Fields     map[string]string // name → message, nested shape alone
	RetryAfter int               // seconds; 0 lets the kind decide
	Cause      error             // for the log, never written
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

// Unwrap gives errors.Is the cause.
func (e *Error) Unwrap() error { return e.Cause }

// New makes an error of the kind with its default code.
func New(kind Kind, message string) *Error { return &Error{Kind: kind, Message: message} }

// Of returns err as an *Error; one that is none becomes Internal with err as its cause.
func Of(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{
		Kind:    Internal,
		Message: "Something went wrong on our side. Quote the request id when you report it.",
		Cause:   err,
	}
}

// Status is the HTTP status of the error.
func (e *Error) Status() int { return kinds[e.Kind].status }

// SayWhen sets Retry-After where coming back may help.
func (e *Error) SayWhen(h http.Header) {
	retry := e.RetryAfter
	if retry == 0 && e.Kind == Unavailable {
		retry = 2
	}
	if retry > 0 {
		h.Set("Retry-After", strconv.Itoa(retry))
	}
}

// A Shape writes an error's body (spec 7.1).
type Shape func(*Error) any

// Nested is {"error":{"code","message"}}: module endpoints.
func Nested(e *Error) any {
	code := e.Code
	if code == "" {
		code = kinds[e.Kind].code
	}
	type body struct {
		Code    string            `json:"code"`
		Message string            `json:"message"`
		Fields  map[string]string `json:"fields,omitempty"`
	}
	return map[string]body{"error": {code, e.Message, e.Fields}}
}

// Flat is {"error","error_description"}: Account endpoints, as OAuth errors are (RFC 6749, section 5.2).
func Flat(e *Error) any {
	code := e.Code
	if code == "" {
		code = kinds[e.Kind].flat
	}
	return struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}{code, e.Message}
}

// Gateway is {"message"}: failures of the Account authorizer.
func Gateway(e *Error) any { return map[string]string{"message": e.Message} }

// Write answers with the error in the shape. Headers that the route needs (WWW-Authenticate, Allow) are set before.
func Write(w http.ResponseWriter, shape Shape, e *Error) {
	e.SayWhen(w.Header())
	web.JSON(w, e.Status(), shape(e))
}
