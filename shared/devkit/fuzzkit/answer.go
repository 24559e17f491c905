package fuzzkit

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Object is the body as a JSON object; nil where it is none, or not said to be JSON.
func (a Answer) Object() map[string]any {
	var out map[string]any
	if a.Header.Get("Content-Type") != "application/json" || json.Unmarshal([]byte(a.Body), &out) != nil {
		return nil
	}
	return out
}

// Text is a member of the body that is a string, or "".
func (a Answer) Text(name string) string {
	text, _ := a.Object()[name].(string)
	return text
}

// IsFlat says whether the body is {"error","error_description"}, as errors of OAuth are (spec 7.1).
func (a Answer) IsFlat() bool {
	return a.Text("error") != "" && a.Text("error_description") != "" && len(a.Object()) == 2
}

// IsGateway says whether the body is {"message"}.
func (a Answer) IsGateway() bool { return a.Text("message") != "" && len(a.Object()) == 1 }

// Code is error.code of {"error":{"code","message"}}, beside which there may be fields; "" where the body is of another
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

// IsPage says whether the body is a page for people.
func (a Answer) IsPage() bool {
	return strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") && strings.Contains(a.Body, "</html>")
}

// Refusal is the beginning of a refusal's body, for messages of tests; "" where something was given, which may be a
// credential.
func (a Answer) Refusal() string {
	if a.Status < http.StatusBadRequest {
		return ""
	}
	return a.Body[:min(len(a.Body), 300)]
}
