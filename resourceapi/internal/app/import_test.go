package app

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// importCSV sends a file and returns the path of its status.
func (s *service) importCSV(h header, content string) string {
	s.t.Helper()
	a := s.do("POST", listPath+"/imports", h.with("Content-Type", "text/csv"), content)
	body := decoded[sentSubmission](s.t, a)
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
	return decoded[importState](s.t, s.get(path, h).wants(s.t, 200, `"errors":[`))
}

// process processes the import, or waits until another test, which processes all imports too, has done so.
func (s *service) process(h header, path string) importState {
	s.t.Helper()
	var state importState
	await.NoError(s.t, func() error {
		if _, err := s.app.store.ProcessImport(s.t.Context()); err != nil {
			return err
		}
		if state = s.importState(h, path); state.Status == "accepted" {
			return fmt.Errorf("%+v", state)
		}
		return nil
	})
	return state
}

func TestImport_AcceptedThenProcessed(t *testing.T) {
	s := newOwn(t) // other tests process all imports
	h := s.editor()
	path := s.importCSV(h, "\ufeffendsOn,name,status,startsOn,summary\r\n"+
		"2026-09-30,Warm Homes,active,2026-04-01,\"Advice,\nat home\"\r\n,Café,,,\r\n")
	s.get(path, h).wants(t, 200, `"status":"accepted","imported":0,"errors":[]`)
	s.wantsRows(0, "resource.programmes", "") // before the import is processed
	if state := s.process(h, path); state.Status != "processed" || state.Imported != 2 || len(state.Errors) != 0 ||
		!strings.HasSuffix(path, state.ID.String()) {
		t.Errorf("%+v", state)
	}
	// Its records count for the credential when it is processed (contract, section 5b).
	s.wantsRows(1, "account.usage", `operation = 'importProgrammes' and records = 2
		and (kind, credential_id) in (select 'personal_access_token', id from account.personal_access_tokens)`)
	s.get(listPath+"?q=warm", h).has(t, `"summary":"Advice,\nat home","status":"active"`,
		`"startsOn":"2026-04-01","endsOn":"2026-09-30"`)
	s.get(listPath+"?q=caf%C3%A9", h).has(t, `"summary":"","status":"draft","startsOn":null,"endsOn":null`)
	s.process(h, path)
	s.wantsRows(2, "resource.programmes", "") // not processed twice
}

func TestImport_OneInvalidRowRejectsAll(t *testing.T) {
	s, h := newEditor(t)
	const dates = "name,status,startsOn,endsOn\nx,open,,\nx,draft,2026-02-30,tomorrow\nx,,2026-04-02,2026-04-01\n"
	for content, want := range map[string]string{ // rows and fields
		"name,status\nGood,draft\n,active\n": "3 name",
		dates:                                "2 status; 3 endsOn; 3 startsOn; 4 endsOn",
		"name;;\nGood;;\nBad;;draft\n":       "3 ", // beyond the header
		"name,status\nGood,draft\nBad\n":     "3 ",
	} {
		state := s.process(h, s.importCSV(h, content))
		var got []string
		for _, e := range state.Errors {
			got = append(got, fmt.Sprintf("%d %s", e.Row, e.Field))
			if e.Message == "" {
				t.Errorf("%+v", e)
			}
		}
		if state.Status != "rejected" || state.Imported != 0 || strings.Join(got, "; ") != want {
			t.Errorf("%q: %+v, want %s", content, state, want)
		}
	}
	s.wantsRows(0, "resource.programmes", "")
}

func TestImport_RefusesInvalidFile(t *testing.T) {
	s, h := newEditor(t)
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
	s, h := newEditor(t)
	keyed := h.with("Idempotency-Key", uuid.NewString())
	first, again := s.importCSV(keyed, "name\nx\n"), s.importCSV(keyed, "name\nx\n")
	s.process(h, first)
	s.wantsRows(1, "resource.programmes", "")
	if first != again {
		t.Errorf("%s and %s", first, again)
	}
}

func TestRun_ProcessesImportsFetchesKeysAndStops(t *testing.T) {
	authserver := newAuthserver(t, newKey(t, "key-1"))
	s := newOwn(t, func(c *Config) { c.JWKSURL = authserver.URL })
	running := s.run()
	h := s.editor()
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

func TestImport_TooManyWaitingIs429(t *testing.T) {
	s := newOwn(t)
	h := s.editor()
	s.Exec(`insert into resource.imports (id, tenant_id, user_id, content)
		select gen_random_uuid(), $1, gen_random_uuid(), 'name' from generate_series(1, 100)`, h.workspace())
	a := s.do("POST", listPath+"/imports", h.with("Content-Type", "text/csv"), "name\nx\n")
	a.expect(t, 429, "RATE_LIMITED", "").header(t, "Retry-After", "*")
}

// The client stops in the middle of the file. The server's own time limit is longer.
func TestImport_SlowUploadTimesOut(t *testing.T) {
	s, h := newEditor(t)
	connection := orFail(net.Dial("tcp", s.server.Listener.Addr().String()))(t)
	defer func() { _ = connection.Close() }()
	_ = connection.SetDeadline(time.Now().Add(await.Long))
	_, _ = io.WriteString(connection, "POST "+listPath+"/imports HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+
		"Content-Type: text/csv\r\nAuthorization: "+h["Authorization"]+"\r\nX-Tenant-Id: "+h["X-Tenant-Id"]+"\r\n"+
		"Content-Length: 100\r\n\r\nname\n")
	answer, err := io.ReadAll(connection)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400") ||
		!strings.Contains(string(answer), "in time") {
		t.Errorf("%v %s", err, answer)
	}
}
