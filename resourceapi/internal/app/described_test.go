package app

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/mux"

	"github.com/almonerhq/almoner/shared/contract/openapi"
)

// described returns the operations that the description has for this service.
func described(t *testing.T) []openapi.Operation {
	t.Helper()
	document, err := openapi.New(base)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(document.Operations(), func(o openapi.Operation) bool {
		return o.Service != openapi.Resourceapi
	})
}

// Invariant O1 of package openapi, for this service: every method of every route is described, and every described
// operation has a route.
func TestO1_RoutesAreThoseDescribed(t *testing.T) {
	t.Parallel()
	document, err := openapi.New(base)
	if err != nil {
		t.Fatal(err)
	}
	app := unconnected(t)
	var routed []string
	err = app.router.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil {
			return err
		}
		recorder := httptest.NewRecorder()
		app.router.ServeHTTP(
			recorder,
			httptest.NewRequest("BREW", strings.NewReplacer("{", "", "}", "").Replace(path), nil),
		)
		for method := range strings.SplitSeq(recorder.Header().Get("Allow"), ", ") {
			if method == "HEAD" { // implied by GET
				continue
			}
			operation, found := document.Find(method, path)
			if !found {
				t.Errorf("%s %s is not described", method, path)
			}
			routed = append(routed, method+" "+operation.Path)
		}
		return nil
	})
	if err != nil || len(routed) < 20 {
		t.Fatalf("%v, %d routes", err, len(routed))
	}
	for _, o := range document.Operations() {
		if is := slices.Contains(routed, o.Method+" "+o.Path); is != (o.Service == openapi.Resourceapi) {
			t.Errorf(
				"%s %s is described as a route of %s; is it one of this service: %t",
				o.Method, o.Path, o.Service, is,
			)
		}
	}
}
