package app

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/mux"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/apidoc"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/forms"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/mcp"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/programmes"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/publicforms"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/shared/openapi"
)

// Invariant O1 of package openapi, for this service: every method of every route is described, and every described
// operation has a route.
func TestO1_RoutesAreThoseDescribed(t *testing.T) {
	t.Parallel()
	const base = "https://api.example.org"
	described, err := openapi.New(base)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := apidoc.New(base)
	if err != nil {
		t.Fatal(err)
	}
	guard := gate.New(gate.Deps{BaseURL: base})
	module := &engageModule{forms: forms.New(forms.Deps{Gate: guard}), public: publicforms.New(publicforms.Deps{})}
	handler := routes(base, guard, programmes.New(programmes.Deps{Gate: guard}), module, mcp.New(mcp.Deps{}), docs, nil)

	var routed []string
	err = handler.(*mux.Router).Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil {
			return err
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(
			recorder,
			httptest.NewRequest("BREW", strings.NewReplacer("{", "", "}", "").Replace(path), nil),
		)
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
	if err != nil || len(routed) < 20 {
		t.Fatalf("%v, %d routes", err, len(routed))
	}
	for _, o := range described.Operations() {
		if is := slices.Contains(routed, o.Method+" "+o.Path); is != (o.Service == openapi.Resourceapi) {
			t.Errorf(
				"%s %s is described as a route of %s; is it one of this service: %t",
				o.Method,
				o.Path,
				o.Service,
				is,
			)
		}
	}
}
