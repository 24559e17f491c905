package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// importCSV sends a file and returns the path of its status.
func (s *service) importCSV(h header, content string) string {
	s.t.Helper()
	a := s.do("POST", listPath+"/imports", h.with("Content-Type", "text/csv"), content)
	var body struct {
		ID        uuid.UUID
		Status    string
		StatusURL string `json:"statusUrl"`
	}
	a.decode(s.t, &body)
	path, ours := strings.CutPrefix(body.StatusURL, base)
	if a.Status != 202 || body.Status != "accepted" || body.ID == uuid.Nil || !ours ||
		a.Header.Get("Location") != body.StatusURL {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	return path
}

type importState struct {
	ID       uuid.UUID
	Status   string
	Imported int
	Errors   []struct {
		Row            int
		Field, Message string
	}
}

func (s *service) importState(h header, path string) importState {
	s.t.Helper()
	a := s.get(path, h)
	if a.Status != 200 || !strings.Contains(a.Body, `"errors":[`) {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	var state importState
	a.decode(s.t, &state)
	return state
}

// process processes the import, or waits until another test, which processes all imports too, has done so.
func (s *service) process(h header, path string) {
	s.t.Helper()
	await.NoError(s.t, func() error {
		if _, err := s.app.store.ProcessImport(s.t.Context()); err != nil {
			return err
		}
		if state := s.importState(h, path); state.Status == "accepted" {
			return fmt.Errorf("%+v", state)
		}
		return nil
	})
}

func TestImport_AcceptedThenProcessed(t *testing.T) {
	t.Parallel()
	s := ownService(t) // other tests process all imports
	_, h := s.editor()
	content := "\ufeffendsOn,name,status,startsOn,summary\r\n2026-09-30,Warm Homes,active,2026-04-01,\"Advice,\nat " +
		"home\"\r\n,Café,,,\r\n"
	path := s.importCSV(h, content)
	if state := s.importState(h, path); state.Status != "accepted" || state.Imported != 0 || len(state.Errors) != 0 {
		t.Errorf("%+v", state)
	}
	if s.programmes() != 0 {
		t.Error("the programmes exist before the import is processed")
	}
	s.process(h, path)
	if state := s.importState(h, path); state.Status != "processed" || state.Imported != 2 || len(state.Errors) != 0 ||
		!strings.HasSuffix(path, state.ID.String()) {
		t.Errorf("%+v", state)
	}
	p := s.page(h, "?q=warm").Data[0]
	if p.Summary != "Advice,\nat home" || p.Status != "active" || *p.StartsOn != "2026-04-01" ||
		*p.EndsOn != "2026-09-30" {
		t.Errorf("%+v", p)
	}
	p = s.page(h, "?q=café").Data[0]
	if p.Summary != "" || p.Status != "draft" || p.StartsOn != nil || p.EndsOn != nil {
		t.Errorf("%+v", p)
	}
	s.process(h, path)
	if s.programmes() != 2 {
		t.Error("processed twice")
	}
}

// Spreadsheets write semicolons or tabs in place of commas, a byte order mark, and empty columns at the end.
func TestImport_ReadsWhatSpreadsheetsWrite(t *testing.T) {
	s := newService(t)
	for name, content := range map[string]string{
		"commas":          "name,externalId,summary\r\nx,7,\"a;b,c\td\"\r\n",
		"semicolons":      "name;externalId;summary\r\nx;7;\"a;b,c\td\"\r\n",
		"tabs":            "name\texternalId\tsummary\nx\t7\t\"a;b,c\td\"\n",
		"byte order mark": "\ufeff\"name\";externalId;summary\nx;7;\"a;b,c\td\"\n",
		"empty columns":   "name;externalId;summary;;;\nx;7;\"a;b,c\td\";;;\n",
		"padded rows":     "\ufeffname,externalId,summary\nx,7,\"a;b,c\td\",,,,\n",
	} {
		_, h := s.editor()
		path := s.importCSV(h, content)
		s.process(h, path)
		if state := s.importState(h, path); state.Status != "processed" || state.Imported != 1 {
			t.Errorf("%s: %+v", name, state)
			continue
		}
		if p := s.page(h, "?externalId=7").Data[0]; p.Name != "x" || p.Summary != "a;b,c\td" {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestImport_OneInvalidRowRejectsAll(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	for name, c := range map[string]struct {
		content string
		want    []string // row and field
	}{
		"no name": {"name,status\nGood,draft\n,active\n", []string{"3 name"}},
		"several": {
			"name,status,startsOn,endsOn\nGood,open,,\nBad,draft,2026-02-30,tomorrow\n",
			[]string{"2 status", "3 endsOn", "3 startsOn"},
		},
		"ends too early":  {"name,startsOn,endsOn\nx,2026-04-02,2026-04-01\n", []string{"2 endsOn"}},
		"too few values":  {"name,status\nGood,draft\nBad\n", []string{"3 "}},
		"too many values": {"name\nGood\nBad,draft\n", []string{"3 "}},
		"beyond header":   {"name;;\nGood;;\nBad;;draft\n", []string{"3 "}},
		"a stray quote":   {"name\nGood\nB\"ad\nOther\n", []string{"3 "}},
		"an open quote":   {"name\nGood\n\"Bad\nOther\n", []string{"3 "}},
		"too many rows":   {"name\n" + strings.Repeat("x\n", 10_001), []string{"10002 "}},
	} {
		t.Run(name, func(t *testing.T) {
			path := s.importCSV(h, c.content)
			s.process(h, path)
			state := s.importState(h, path)
			var got []string
			for _, e := range state.Errors {
				got = append(got, fmt.Sprintf("%d %s", e.Row, e.Field))
				if e.Message == "" {
					t.Errorf("%+v", e)
				}
			}
			if state.Status != "rejected" || state.Imported != 0 ||
				strings.Join(got, "; ") != strings.Join(c.want, "; ") {
				t.Errorf("%+v, want %v", state, c.want)
			}
			if s.programmes() != 0 {
				t.Error("part of the import was stored")
			}
		})
	}
}

func TestImport_RefusesInvalidFile(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	asCSV := h.with("Content-Type", "text/csv")
	for _, content := range map[string]string{
		"empty":          "",
		"no name":        "summary\nx\n",
		"unknown column": "name,colour\nx,red\n",
		"twice":          "name,name\nx,y\n",
		"another case":   "Name\nx\n",
		"two separators": "name;summary,status\nx;y,draft\n",
		"gap in header":  "name,,summary\nx,,y\n",
		"only empty":     ",,,\nx,,,\n",
		"spaces":         "name, summary\nx,y\n",
		"not UTF-8":      "name\n\xff\n",
		"NUL":            "name\nx\x00\n",
		"quote":          "\"name\nx\n",
	} {
		s.do("POST", listPath+"/imports", asCSV, content).expect(t, 400, "VALIDATION_ERROR", "")
	}
	for _, kind := range []string{"application/json", "", "text/plain", "text/csv; charset=latin1"} {
		s.do("POST", listPath+"/imports", h.with("Content-Type", kind), "name\nx\n").wants(t, 400)
	}
	tooLong := "name\n" + strings.Repeat("x", 3<<20)
	s.do("POST", listPath+"/imports", asCSV, tooLong).wants(t, 413)
	s.wantsRows(0, "resource.imports", "")
}

func TestImport_IsIdempotent(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	keyed := h.with("Idempotency-Key", uuid.NewString())
	first, again := s.importCSV(keyed, "name\nx\n"), s.importCSV(keyed, "name\nx\n")
	s.process(h, first)
	if first != again || s.programmes() != 1 {
		t.Errorf("%s and %s, %d programmes", first, again, s.programmes())
	}
}

func TestRun_ProcessesImportsFetchesKeysAndStops(t *testing.T) {
	t.Parallel()
	authserver := newAuthserver(t, newKey(t, "key-1"))
	s := ownService(t, func(c *Config) { c.JWKSURL = authserver.URL })
	running := s.run()
	_, h := s.editor()
	path := s.importCSV(h, "name\nx\n")
	await.True(t, "the import is processed", func() bool {
		return s.importState(h, path).Status == "processed"
	})
	if authserver.requests() == 0 {
		t.Error("the keys are not fetched in advance")
	}
	running.stop()
	if err := <-running.ended; err != nil {
		t.Error(err)
	}
}

// F11: the memory that an import needs depends on its size only, whatever its cells are.
func TestImport_RefusesHostileHeader(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	h = h.with("Content-Type", "text/csv")
	for _, content := range map[string]string{
		"commas":        strings.Repeat(",", 2<<20-10),
		"quoted lines":  "\"name" + strings.Repeat(",\n", 1<<20-10) + "\"\nx\n",
		"an open quote": "name,\"" + strings.Repeat(",\n", 1<<20-10),
	} {
		s.do("POST", listPath+"/imports", h, content).wants(t, 400, `"header"`)
	}
}

func TestImport_RejectsHostileRow(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	path := s.importCSV(h, "name\nGood\n"+strings.Repeat(",", 1<<20)+"\n")
	s.process(h, path)
	if state := s.importState(h, path); state.Status != "rejected" || len(state.Errors) != 1 ||
		state.Errors[0].Row != 3 {
		t.Errorf("%+v", state)
	}
}

func TestImport_TooManyWaitingIs429(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, h := s.editor()
	s.Exec(`insert into resource.imports (id, tenant_id, user_id, content)
		select gen_random_uuid(), $1, gen_random_uuid(), 'name' from generate_series(1, 100)`, workspaceID)
	a := s.do("POST", listPath+"/imports", h.with("Content-Type", "text/csv"), "name\nx\n")
	a.expect(t, 429, "RATE_LIMITED", "").header(t, "Retry-After", "*")
}
