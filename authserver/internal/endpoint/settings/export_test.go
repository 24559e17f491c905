package settings_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/shared/seal"
)

// allowed is an Access that never ends.
type allowed struct{}

func (allowed) StillAllowed(context.Context, *audit.Authorization) error { return nil }

// HEAD must not cost as much as the whole export, which nothing records.
func TestExport_HeadReadsOnePage(t *testing.T) {
	t.Parallel()
	h, err := settings.New(settings.Deps{Access: allowed{}, Keys: seal.NewKeys(make([]byte, 32))})
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]int{http.MethodHead: 1, http.MethodGet: 3} {
		read := 0
		export := settings.Export[int]{
			Name:  "log",
			Cells: func(int) []string { return nil },
			Line:  func(n int) any { return n },
			Page: func(*int) ([]int, error) {
				read++
				if read == 3 {
					return nil, nil
				}
				return make([]int, settings.ExportPage), nil
			},
		}
		w := httptest.NewRecorder()
		v := &settings.Request{W: w, R: httptest.NewRequest(method, "/settings/audit.jsonl", nil)}
		if err := export.Write(h, v, settings.Scope{}, settings.JSONLines); err != nil {
			t.Fatal(err)
		}
		if read != want || w.Header().Get("Content-Type") == "" {
			t.Errorf("%s reads %d pages, want %d; %v", method, read, want, w.Header())
		}
	}
}
