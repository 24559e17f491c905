package apierr

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestWrite_ShapesMatchSpec(t *testing.T) {
	e := New(Forbidden, "You are not a member.")
	for _, c := range []struct {
		name  string
		shape Shape
		want  string
	}{
		{"nested", Nested, `{"error":{"code":"FORBIDDEN","message":"You are not a member."}}`},
		{"flat", Flat, `{"error":"access_denied","error_description":"You are not a member."}`},
		{"gateway", Gateway, `{"message":"You are not a member."}`},
	} {
		recorder := httptest.NewRecorder()
		Write(recorder, c.shape, e)
		if got := strings.TrimSpace(recorder.Body.String()); got != c.want || recorder.Code != 403 {
			t.Errorf("%s: %d %s", c.name, recorder.Code, got)
		}
		if code := recorder.Header().Get(CodeHeader); code != "FORBIDDEN" {
			t.Errorf("%s: the code is %s", c.name, code)
		}
	}
	recorder := httptest.NewRecorder()
	Write(recorder, Flat, &Error{Kind: Invalid, Code: "invalid_grant", Message: "The code has expired."})
	if code := recorder.Header().Get(CodeHeader); code != "INVALID_GRANT" {
		t.Errorf("the code is %s", code)
	}
}

func TestOf_HidesUnknownError(t *testing.T) {
	recorder := httptest.NewRecorder()
	Write(recorder, Nested, Of(errors.New("pq: relation secret_table does not exist")))
	if recorder.Code != 500 || strings.Contains(recorder.Body.String(), "secret_table") {
		t.Errorf("%d %s", recorder.Code, recorder.Body)
	}
}

func TestWrite_UnavailableSetsRetryAfter(t *testing.T) {
	recorder := httptest.NewRecorder()
	Write(recorder, Flat, New(Unavailable, "The store does not answer."))
	if recorder.Code != 503 || recorder.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", recorder.Code, recorder.Header())
	}
}
