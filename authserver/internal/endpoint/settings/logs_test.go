package settings

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// allowed is a store in which access never ends.
type allowed struct{ Workspaces }

func (allowed) StillAllowed(context.Context, *audit.Authorization) error { return nil }

// HEAD must not cost as much as the whole export, which nothing records.
func TestExport_HeadReadsOnePage(t *testing.T) {
	t.Parallel()
	s, err := New(Deps{Store: Store{Workspaces: allowed{}}, Keys: seal.NewKeys(make([]byte, 32))})
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]int{http.MethodHead: 1, http.MethodGet: 3} {
		read := 0
		log := workspaceLog[int]{
			name:   "log",
			cursor: func(int) audit.Cursor { return audit.Cursor{} },
			cells:  func(int) []string { return nil },
			line:   func(n int) any { return n },
			read: func(context.Context, uuid.UUID, audit.Search, audit.Cursor, int) ([]int, error) {
				read++
				if read == 3 {
					return nil, nil
				}
				return make([]int, exportPage), nil
			},
		}
		w := httptest.NewRecorder()
		r := &request{Settings: s, w: w, http: httptest.NewRequest(method, "/settings/audit.jsonl", nil)}
		if err := log.write(r, jsonLines); err != nil {
			t.Fatal(err)
		}
		if read != want || w.Header().Get("Content-Type") == "" {
			t.Errorf("%s reads %d pages, want %d; %v", method, read, want, w.Header())
		}
	}
}

// At most 4 pages of logs are read at once. Another read waits up to 3 seconds for its turn.
func TestReadLog_BoundsReadsOfAllUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Settings{turns: newTurns()}
		var reads sync.WaitGroup
		release := make(chan struct{})
		for range turnsOfReads {
			reads.Go(func() {
				if err := s.readLog(t.Context(), func() error { <-release; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		err := s.readLog(t.Context(), func() error { t.Error("read"); return nil })
		if took := time.Since(began); !errors.Is(err, errBusy) || took != turnWait {
			t.Errorf("%v after %s", err, took)
		}
		reads.Go(func() {
			if err := s.readLog(t.Context(), func() error { return nil }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		close(release)
		reads.Wait()
	})
}

// contents returns the contents of the files that match.
func contents(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files match %s: %v", len(files), pattern, err)
	}
	var all strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}

// TestFields_AreUsedAndOnPages checks that each field of the table is named in the source, by its name or by the form
// before it, and that a page has it and shows its error.
func TestFields_AreUsedAndOnPages(t *testing.T) {
	t.Parallel()
	source, pages := contents(t, "*.go"), contents(t, "../ui/templates/*.html")
	for name, field := range fields() {
		form, _, _ := strings.Cut(name, " ")
		if !strings.Contains(source, `("`+name+`", `) && !strings.Contains(source, `("`+form+` "+`) {
			t.Errorf("%q is not used", name)
		}
		if field.Label == "" || !strings.Contains(pages, `id="`+field.At+`"`) ||
			!strings.Contains(pages, `.Of "`+field.Field+`"`) {
			t.Errorf("%q is not on a page: %+v", name, field)
		}
	}
}
