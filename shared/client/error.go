package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Shape is the format of a refusal (spec 7.1).
type Shape string

// The shapes.
const (
	Nested  Shape = "nested"  // {"error":{"code","message","fields"?}}: module endpoints
	Flat    Shape = "flat"    // {"error","error_description"}: account endpoints, as in RFC 6749, section 5.2
	Gateway Shape = "gateway" // {"message"}: the account authorizer
	Foreign Shape = "foreign" // none of these: the response came from something between the program and Almoner
)

// Codes of the nested shape (contract, section 6).
const (
	CodeInvalid            = "VALIDATION_ERROR"
	CodeUnauthenticated    = "UNAUTHENTICATED"
	CodeForbidden          = "FORBIDDEN"
	CodeModuleNotEnabled   = "MODULE_NOT_ENABLED"
	CodeNotProvisioned     = "TENANT_NOT_PROVISIONED"
	CodeNotFound           = "NOT_FOUND"
	CodeConflict           = "CONFLICT"
	CodePreconditionFailed = "PRECONDITION_FAILED"
	CodeRateLimited        = "RATE_LIMITED"
	CodeUnavailable        = "UNAVAILABLE"
)

// ErrConsentAgain matches an *Error (errors.Is) if a grant has ended or was revoked: the program must ask the
// user for consent again.
var ErrConsentAgain = errors.New("the user must consent again")

// An Error is a refusal of the API.
type Error struct {
	Status     int // HTTP status; 0 if the refusal came from the consent page
	Shape      Shape
	Code       string            // "" in the gateway shape and in a foreign one
	Message    string            // plain words
	Fields     map[string]string // what is wrong, by field name; nested shape only
	RetryAfter time.Duration     // 0 if the response has none
	RequestID  string            // to quote when reporting it

	source string // method and path of the request, or the consent page
}

// maxFieldsShown is the maximum number of fields in the text of an error.
const maxFieldsShown = 10

// Error returns the method, the path and the error of the response, with up to 10 fields. It contains no query, header
// or body of the request.
func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString("almoner: " + e.source + ":")
	if e.Status != 0 {
		fmt.Fprintf(&text, " %d", e.Status)
	}
	if e.Code != "" {
		fmt.Fprintf(&text, " %.100s", e.Code)
	}
	if e.Message != "" {
		fmt.Fprintf(&text, ": %.500s", e.Message)
	}
	for _, field := range slices.Sorted(maps.Keys(e.Fields))[:min(len(e.Fields), maxFieldsShown)] {
		fmt.Fprintf(&text, "; %.100s: %.200s", field, e.Fields[field])
	}
	if e.RequestID != "" {
		text.WriteString(" (request " + e.RequestID + ")")
	}
	return text.String()
}

// Temporary reports whether the same request may succeed later. A module that is not provisioned is not
// temporary, although its status is 503: "retrying cannot enable it" (spec 7.2).
func (e *Error) Temporary() bool {
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return e.Code != CodeNotProvisioned && e.Code != "not_provisioned"
	}
	return false
}

// Is makes errors.Is match ErrConsentAgain.
func (e *Error) Is(target error) bool {
	return target == ErrConsentAgain && e.Shape == Flat && e.Code == "invalid_grant"
}

// refusalOf reads a refusal: "A client checks the HTTP status and the actual body shape before reading error.code"
// (spec 7.1).
func refusalOf(r request, response *http.Response, content []byte) *Error {
	e := &Error{
		Status:     response.StatusCode,
		Shape:      Foreign,
		source:     r.method + " " + r.path,
		RetryAfter: retryAfter(response.Header),
		RequestID:  shortened(response.Header.Get("X-Request-Id")),
	}
	var body struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"error_description"`
		Message     *string         `json:"message"`
	}
	if json.Unmarshal(content, &body) == nil {
		e.readShape(bytes.TrimSpace(body.Error), body.Description, body.Message)
	}
	if e.Shape == Foreign {
		e.Message = "the response is not from Almoner: check the proxies in between"
		if e.Status >= 300 && e.Status < 400 {
			e.Message = "the response is a redirect, which is not followed: check the base URL"
		}
	}
	return e
}

func (e *Error) readShape(inner json.RawMessage, description string, message *string) {
	var nested struct {
		Code    string            `json:"code"`
		Message string            `json:"message"`
		Fields  map[string]string `json:"fields"`
	}
	var code string
	switch {
	case len(inner) > 0 && inner[0] == '{' && json.Unmarshal(inner, &nested) == nil && nested.Code != "":
		e.Shape, e.Code, e.Message, e.Fields = Nested, nested.Code, nested.Message, nested.Fields
	case len(inner) > 0 && json.Unmarshal(inner, &code) == nil && code != "":
		e.Shape, e.Code, e.Message = Flat, code, description
	case len(inner) == 0 && message != nil:
		e.Shape, e.Message = Gateway, *message
	}
}

// retryAfter reads seconds or a date (RFC 9110, section 10.2.3).
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(date))
	}
	return 0
}

// shortened limits the length of a received request id.
func shortened(id string) string { return id[:min(len(id), 64)] }
