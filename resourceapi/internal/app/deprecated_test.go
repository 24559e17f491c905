package app

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// Every response to a deprecated operation announces the deprecation, even a refusal.
func TestRouter_AnnouncesDeprecatedOperations(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	things := routes{"/v1/things/{id}": {"GET": handler, "POST": handler}}
	router := newRouter(new(gate.Gate), []routes{things}, rest.Deprecations{{
		Method: "GET",
		Path:   "/v1/things/{id}",
		Since:  time.Unix(1_798_761_600, 0),
		Sunset: time.Unix(1_814_400_000, 0),
		Link:   "https://api.example.org/v1/docs",
	}})
	for method, want := range map[string]string{"GET": "@1798761600", "HEAD": "@1798761600", "POST": ""} {
		recorder := httptest.NewRecorder()
		router.ServeHTTP(recorder, httptest.NewRequest(method, "/v1/things/1", nil))
		if got := recorder.Header().Get("Deprecation"); got != want || recorder.Code != http.StatusForbidden {
			t.Errorf("%s: %d %q", method, recorder.Code, got)
		}
	}
}
