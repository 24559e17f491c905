package mcp

import (
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// The description says which permission each tool demands, for rehearsals.
func TestTools_DemandWhatIsDescribed(t *testing.T) {
	document, err := openapi.New("https://api.example.org")
	if err != nil {
		t.Fatal(err)
	}
	operation, _ := document.Find("POST", Path)
	described, tools := operation.Tools(), New(Deps{}).tools
	if !slices.Equal(slices.Sorted(maps.Keys(described)), slices.Sorted(maps.Keys(tools))) {
		t.Errorf("described tools %v", described)
	}
	for name, tool := range tools {
		var needs perm.Set
		if tool.need != "" {
			needs = perm.NewSet(tool.need)
		}
		if described[name].Scope() != needs.Scope() {
			t.Errorf("%s needs %v, described %v", name, needs, described[name])
		}
	}
}

// All calls of a batch that is refused because its tools need different permissions count.
func TestTools_CallsOfRefusedBatchCount(t *testing.T) {
	var counted, used []string
	e := New(Deps{Count: func(tool string) { counted = append(counted, tool) }})
	e.tools["list_forms"] = tool{need: perm.EngageReadForms, read: e.readWhoami}
	want := []string{"whoami", "get_programme", "list_forms", "whoami", "list_programmes"}
	messages := make([]string, len(want))
	for i, name := range want {
		messages[i] = `{"jsonrpc":"2.0","id":"` + uuid.NewString() + `","method":"tools/call",` +
			`"params":{"name":"` + name + `","arguments":{}}}`
	}
	request := httptest.NewRequest("POST", Path, strings.NewReader("["+strings.Join(messages, ",")+"]"))
	request.Header.Set("Content-Type", "application/json")
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		plan, err := e.prepare(w)(r, uuid.Nil)
		if err == nil {
			err = plan.Serve(w, r, gate.Caller{})
		}
		if err != nil {
			t.Error(err)
		}
		for _, call := range web.TallyOf(r.Context()).Calls {
			used = append(used, call.Operation)
		}
	})
	answer := httptest.NewRecorder()
	web.Observe(handler, slog.New(slog.DiscardHandler), handler).ServeHTTP(answer, request)
	if answer.Code != 400 || !slices.Equal(counted, want) || !slices.Equal(used, want) {
		t.Errorf("%d %s, %q, %q", answer.Code, answer.Body, counted, used)
	}
}
