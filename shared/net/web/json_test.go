package web

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
)

func TestJSON_DoesNotEscapeHTML(t *testing.T) {
	value := map[string]string{"name": "<A&B>", "line": "a\nb\u2028\"\\"}
	const want = `{"line":"a\nb\u2028\"\\","name":"<A&B>"}`
	content, err := EncodeJSON(value)
	if err != nil || string(content) != want {
		t.Errorf("%s, %v", content, err)
	}
	recorder := httptest.NewRecorder()
	JSON(recorder, 200, value)
	if got := recorder.Body.String(); got != want+"\n" {
		t.Errorf("%s", got)
	}
	var read map[string]string
	if err := json.Unmarshal(content, &read); err != nil || read["name"] != value["name"] ||
		read["line"] != value["line"] {
		t.Errorf("%v, %v", read, err)
	}
	if _, err := EncodeJSON(func() {}); err == nil {
		t.Error("EncodeJSON accepted a function")
	}
}
