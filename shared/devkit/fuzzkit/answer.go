package fuzzkit

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Object returns the body as a JSON object, or nil if it is not one or has another content type.
func (a Answer) Object() map[string]any {
	var out map[string]any
	if a.Header.Get("Content-Type") != "application/json" || json.Unmarshal([]byte(a.Body), &out) != nil {
		return nil
	}
	return out
}

// Text returns a string member of the body, or "".
func (a Answer) Text(name string) string {
	text, _ := a.Object()[name].(string)
	return text
}

// IsFlat reports whether the body is {"error","error_description"}, the shape of OAuth errors (spec 7.1).
func (a Answer) IsFlat() bool {
	return a.Text("error") != "" && a.Text("error_description") != "" && len(a.Object()) == 2
}

// IsGateway reports whether the body is {"message"}.
func (a Answer) IsGateway() bool { return a.Text("message") != "" && len(a.Object()) == 1 }

// Code returns error.code of {"error":{"code","message"}}, which may also have fields, or "" for another
// shape.
func (a Answer) Code() string {
	inner, _ := a.Object()["error"].(map[string]any)
	code, _ := inner["code"].(string)
	message, _ := inner["message"].(string)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(inner)), func(name string) bool { return name == "fields" })
	if message == "" || len(a.Object()) != 1 || !slices.Equal(names, []string{"code", "message"}) {
		return ""
	}
	return code
}

// IsPage reports whether the body is an HTML page.
func (a Answer) IsPage() bool {
	return strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") && strings.Contains(a.Body, "</html>")
}

// Refusal returns the beginning of a refusal's body for test messages, or "" for a success, which may contain
// a credential.
func (a Answer) Refusal() string {
	if a.Status < http.StatusBadRequest {
		return ""
	}
	return a.Body[:min(len(a.Body), 300)]
}
