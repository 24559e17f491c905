package app

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/mux"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/api"
	"github.com/almonerhq/almoner/shared/contract/openapi"
)

// Invariant O1 of package openapi for this service: the document describes every method of every API route, and
// describes no other. Pages and this service's health are served at the app's URL and are not in the document.
func TestO1_RoutesAreThoseDescribed(t *testing.T) {
	t.Parallel()
	described, err := openapi.New("https://api.example.org")
	if err != nil {
		t.Fatal(err)
	}
	router := mux.NewRouter().UseEncodedPath().SkipClean(true)
	a := &App{resources: []string{""}}
	a.accountRoutes(router, new(api.Deps).Routes())
	a.documentRoutes(router, nil)

	var routed []string
	err = router.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil || path == "/healthz" || path == "/readyz" {
			return err
		}
		recorder := httptest.NewRecorder()
		target := strings.NewReplacer("{", "", "}", "").Replace(path)
		router.ServeHTTP(recorder, httptest.NewRequest("BREW", target, nil))
		for method := range strings.SplitSeq(recorder.Header().Get("Allow"), ", ") {
			if method == "HEAD" { // implied by GET
				continue
			}
			operation, found := described.Find(method, path)
			if !found {
				t.Errorf("%s %s is not described", method, path)
			}
			routed = append(routed, method+" "+operation.Path)
		}
		return nil
	})
	if err != nil || len(routed) < 15 {
		t.Fatalf("%v, %d routes", err, len(routed))
	}
	for _, o := range described.Operations() {
		if is := slices.Contains(routed, o.Method+" "+o.Path); is != (o.Service == openapi.Authserver) {
			t.Errorf("%s %s is described for %s; is it a route of this service: %t", o.Method, o.Path, o.Service, is)
		}
	}
}
