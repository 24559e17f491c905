package harness

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An Answer is the response to one request.
type Answer struct {
	Request string // method and path
	Status  int
	Header  http.Header
	Body    []byte
}

// longestPrint is the maximum length of a body in a failure message, in bytes.
const longestPrint = 2000

// String returns the answer for a failure message: the visible text of an HTML page or the body, the Location header
// and no other header. Secrets are redacted.
func (a Answer) String() string {
	body := string(a.Body)
	if strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
		body = readable(a.Body)
	}
	if len(body) > longestPrint {
		body = body[:longestPrint] + "…"
	}
	return fmt.Sprintf("%s\n  → %d %s\n  %s", a.Request, a.Status, Redact(a.Header.Get("Location")), Redact(body))
}

// Wants fails the test now unless the status is the given one. It returns the answer.
func (a Answer) Wants(t testing.TB, status int) Answer {
	t.Helper()
	if a.Status != status {
		t.Fatalf("want status %d:\n%s", status, a)
	}
	return a
}

// Object returns the body, which must be a single JSON object declared as application/json.
func (a Answer) Object(t testing.TB) map[string]any {
	t.Helper()
	if kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		t.Fatalf("Content-Type %q is not JSON:\n%s", a.Header.Get("Content-Type"), a)
	}
	decoder := json.NewDecoder(bytes.NewReader(a.Body))
	var object map[string]any
	if err := decoder.Decode(&object); err != nil || object == nil || decoder.More() {
		t.Fatalf("the body is not one JSON object:\n%s", a)
	}
	return object
}

// Into decodes the body into value. Unknown fields fail the test.
func (a Answer) Into(t testing.TB, value any) {
	t.Helper()
	a.Object(t)
	decoder := json.NewDecoder(bytes.NewReader(a.Body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		t.Fatalf("the body does not have the wanted shape (%v):\n%s", err, a)
	}
}

// WantsKeys checks that the object has exactly these keys, and returns it.
func (a Answer) WantsKeys(t testing.TB, keys ...string) map[string]any {
	t.Helper()
	object := a.Object(t)
	slices.Sort(keys)
	if got := slices.Sorted(maps.Keys(object)); !slices.Equal(got, keys) {
		t.Errorf("keys %v, want %v:\n%s", got, keys, a)
	}
	return object
}

// WantsNested checks for {"error":{"code","message"}} (spec 7.1, module endpoints) and returns the message.
func (a Answer) WantsNested(t testing.TB, status int, code string) string {
	t.Helper()
	object := a.Wants(t, status).WantsKeys(t, "error")
	inner, _ := object["error"].(map[string]any)
	message, _ := inner["message"].(string)
	for key := range inner {
		if key != "code" && key != "message" && key != "fields" {
			t.Errorf("unexpected key error.%s:\n%s", key, a)
		}
	}
	if inner["code"] != code || message == "" {
		t.Errorf("want error.code %s and a message:\n%s", code, a)
	}
	return message
}

// WantsFlat checks for {"error","error_description"} (contract, sections 3 and 5) and returns the description.
// Several codes mean that the contract allows any of them.
func (a Answer) WantsFlat(t testing.TB, status int, codes ...string) string {
	t.Helper()
	object := a.Wants(t, status).WantsKeys(t, "error", "error_description")
	code, _ := object["error"].(string)
	description, _ := object["error_description"].(string)
	if !slices.Contains(codes, code) || description == "" {
		t.Errorf("want error %s and a description:\n%s", strings.Join(codes, " or "), a)
	}
	return description
}

// WantsHeader checks one header.
func (a Answer) WantsHeader(t testing.TB, name, value string) Answer {
	t.Helper()
	if got := a.Header.Get(name); got != value {
		t.Errorf("header %s is %q, want %q:\n%s", name, got, value, a)
	}
	return a
}

// WantsRetryAfter checks that Retry-After is a positive number of seconds.
func (a Answer) WantsRetryAfter(t testing.TB) Answer {
	t.Helper()
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || seconds < 1 {
		t.Errorf("Retry-After is %q, want seconds:\n%s", a.Header.Get("Retry-After"), a)
	}
	return a
}

// A JWT is a decoded token. It is decoded without the product's libraries.
type JWT struct {
	Header map[string]any
	Claims map[string]any

	Signed    string // header and claims, encoded
	Signature []byte
}

// Decode decodes a compact JWS without verifying it.
func Decode(t testing.TB, token string) JWT {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("an access token has %d parts", len(parts))
	}
	out := JWT{Signed: parts[0] + "." + parts[1]}
	out.Header, out.Claims = decodePart(t, parts[0]), decodePart(t, parts[1])
	signature, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil {
		t.Fatal("the signature of an access token is not base64url")
	}
	out.Signature = signature
	return out
}

func decodePart(t testing.TB, part string) map[string]any {
	t.Helper()
	content, err := base64.RawURLEncoding.Strict().DecodeString(part)
	var out map[string]any
	if err != nil || json.Unmarshal(content, &out) != nil {
		t.Fatal("a part of an access token is not JSON in base64url")
	}
	return out
}

// GrantOf returns the id of the grant that an access token belongs to.
func GrantOf(t testing.TB, accessToken string) string {
	t.Helper()
	id, _ := Decode(t, accessToken).Claims["grant_id"].(string)
	if id == "" {
		t.Fatal("an access token without grant_id")
	}
	return id
}
