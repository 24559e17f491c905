package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/client"
)

func TestError_ReadsEachShape(t *testing.T) {
	for name, c := range map[string]struct {
		status        int
		kind, body    string
		shape         client.Shape
		code, message string
		temporary     bool
	}{
		"nested": {
			404, "application/json", `{"error":{"code":"NOT_FOUND","message":"No."}}`, client.Nested, "NOT_FOUND",
			"No.", false,
		},
		"flat": {
			400, "application/json", `{"error":"invalid_grant","error_description":"Gone."}`, client.Flat,
			"invalid_grant", "Gone.", false,
		},
		"flat without words": {404, "application/json", `{"error":"not_found"}`, client.Flat, "not_found", "", false},
		"gateway": {
			403, "application/json", `{"message":"Forbidden"}`, client.Gateway, "", "Forbidden", false,
		},
		"unavailable": {
			503, "application/json", `{"error":{"code":"UNAVAILABLE","message":"Soon."}}`, client.Nested, "UNAVAILABLE",
			"Soon.", true,
		},
		"flat and unavailable": {
			503, "application/json", `{"error":"temporarily_unavailable","error_description":"Soon."}`, client.Flat,
			"temporarily_unavailable", "Soon.", true,
		},
		"not provisioned": {
			503, "application/json", `{"error":{"code":"TENANT_NOT_PROVISIONED","message":"Ask."}}`, client.Nested,
			"TENANT_NOT_PROVISIONED", "Ask.", false,
		},
		"too many": {
			429, "application/json", `{"error":{"code":"RATE_LIMITED","message":"Wait."}}`, client.Nested,
			"RATE_LIMITED", "Wait.", true,
		},
		"a proxy's page": {
			502, "text/html", `<html><h1>Bad Gateway</h1></html>`, client.Foreign, "", "not from Almoner", true,
		},
		"an empty body":     {500, "", ``, client.Foreign, "", "not from Almoner", false},
		"a list":            {500, "application/json", `["error"]`, client.Foreign, "", "not from Almoner", false},
		"error of a number": {500, "application/json", `{"error":7}`, client.Foreign, "", "not from Almoner", false},
		"error without a code": {
			500, "application/json", `{"error":{"message":"x"}}`, client.Foreign, "", "not from Almoner", false,
		},
		"a redirect": {302, "text/html", ``, client.Foreign, "", "redirect", false},
		"success in HTML": {
			200, "text/html", `<html>Sign in to the hotel's network</html>`, client.Foreign, "", "is not Almoner",
			false,
		},
		"success in no JSON": {200, "application/json", `<html>`, client.Foreign, "", "not the expected JSON", false},
		"endless refusal":    {500, "text/plain", strings.Repeat("x", 1<<20), client.Foreign, "", "too long", false},
		"endless success": {
			200, "application/json", `{"name":"` + strings.Repeat("x", 17<<20) + `"}`, client.Foreign, "", "too long",
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := get(t, against(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.Header().Set("X-Request-Id", "id-7")
				w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			if got.Status != c.status || got.Shape != c.shape || got.Code != c.code ||
				!strings.Contains(got.Message, c.message) || got.Temporary() != c.temporary || got.RequestID != "id-7" {
				t.Errorf("%+v", got)
			}
			if text := got.Error(); !strings.Contains(text, "GET /v1/programmes/programmes/p") ||
				!strings.Contains(text, "id-7") || strings.Contains(text, "elsewhere") || len(text) > 800 {
				t.Errorf("%s", text)
			}
		})
	}
}

func TestError_ReadsFieldsAndRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"7":                    7 * time.Second,
		"":                     0,
		"soon":                 0,
		"-1":                   0,
		"99999999999999999999": 0,
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): 0,
		time.Now().Add(time.Hour).UTC().Format(http.TimeFormat):  time.Hour,
	} {
		got := get(t, against(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			answer(w, 400, `{"error":{"code":"VALIDATION_ERROR","message":"No.","fields":{"name":"Required."}}}`)
		}))
		if (got.RetryAfter-want).Abs() > 5*time.Second || got.Fields["name"] != "Required." {
			t.Errorf("%q: %+v", header, got)
		}
	}
}
