package app

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// silently makes a service wait as short for a silent store as a busy machine allows.
func silently(c *Config) { c.StoreWait = testkit.SilentStoreWait }

// requests are sent at the same time, because each waits for a silent store.
type requests map[string]func() answer

// unavailable is unavailableWithin a time that no service should need for requests that wait at the same time.
func (r requests) unavailable(t *testing.T) { t.Helper(); r.unavailableWithin(t, 3*testkit.StoreWait) }

// unavailableWithin checks for a 503 with Retry-After to each request within the time limit.
func (r requests) unavailableWithin(t *testing.T, limit time.Duration) {
	t.Helper()
	began := time.Now()
	for name, a := range r.send() {
		a.header(t, "Retry-After", "*")
		if a.expect(t, 503, "UNAVAILABLE", ""); a.Status != 503 {
			t.Errorf("%s: %d", name, a.Status)
		}
	}
	if took := time.Since(began); took > limit {
		t.Errorf("took %s, want at most %s", took, limit)
	}
}

// send returns the answer to each request.
func (r requests) send() map[string]answer {
	answers := make(map[string]answer, len(r))
	var mu sync.Mutex
	var group sync.WaitGroup
	for name, do := range r {
		group.Go(func() {
			a := do()
			mu.Lock()
			defer mu.Unlock()
			answers[name] = a
		})
	}
	group.Wait()
	return answers
}

func (s *service) eventually(t *testing.T, status int, do func() answer) {
	t.Helper()
	await.NoError(t, func() error {
		if a := do(); a.Status != status {
			return fmt.Errorf("%d %s", a.Status, a.Body)
		}
		return nil
	})
}

// Without Postgres no credential can be checked, and every request gets a 503: of the API, of assistants and of the
// public.
func TestAPI_Returns503WithoutPostgres(t *testing.T) {
	few := func(c *Config) { c.Connections, c.StoreWait, c.searchTime = 4, 5*time.Second, 2*time.Second }
	var postgres *wire
	s := newOwn(t, few, through(t, &postgres))
	h := s.editor()
	ids := s.Programmes(h.workspace(), 3)
	_, f := s.form()
	body := submissionOf(s.submissionToken(f), goodAnswers())
	list := func() answer { return s.get(listPath, h) }
	s.eventually(t, 200, list)
	ready := func() answer { return s.get("/readyz", nil) }
	all := s.needPostgres(ids[0], h, f, body)
	all["ready"] = ready

	t.Run("the records are locked", func(t *testing.T) { s.checkLocked(t, ids[0], h) })
	t.Run("hanging", func(t *testing.T) {
		postgres.freeze()
		defer postgres.thaw()
		all.unavailable(t)
		many := requests{}
		for i := range 10 * s.config.Connections {
			many[strconv.Itoa(int(i))] = list
		}
		// In turn for the connections, they would take ten times the wait.
		many.unavailableWithin(t, 3*s.config.StoreWait)
		// Requests that need no database are served as usual.
		s.get(listPath, nil).expect(t, 401, "UNAUTHENTICATED", "none")
		s.get(listPath, as("alm_pat_x", h.workspace())).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
		s.get("/healthz", nil).wants(t, 200)
	})
	t.Run("recovered", func(t *testing.T) {
		s.eventually(t, 200, list)
		s.eventually(t, 200, ready)
		var last answer
		s.eventually(t, 202, func() answer { last = s.submit(f, nil, body); return last })
		s.acceptedAs(last)
	})
	t.Run("gone", func(t *testing.T) {
		_ = postgres.listener.Close()
		postgres.cut()
		all.unavailable(t)
	})
	s.logLacks(h.token(), password(t, s.config.DatabaseURL.Reveal()))
	s.logHas(`"cause"`)
}

// needPostgres returns requests that need the database.
func (s *service) needPostgres(id uuid.UUID, h header, f formRecord, body string) requests {
	s.t.Helper()
	workspaceID, user := h.workspace(), s.User()
	s.Member(workspaceID, user, perm.ProgrammesRead)
	grant := func(resource string) string {
		return s.token(claims(s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead)))
	}
	connector, assisted := as(grant(resource), workspaceID), assistant(grant(mcpResource))
	unknown, status := as(s.unknownPAT(), workspaceID), s.accepted(f).StatusURL[len(base):]
	s.get(listPath, connector).wants(s.t, 200) // the keys are cached now
	all := requests{
		"list":            func() answer { return s.get(listPath, h) },
		"search":          func() answer { return s.get(listPath+"?q=a", h) },
		"read":            func() answer { return s.get(listPath+"/"+id.String(), h) },
		"connector":       func() answer { return s.get(listPath, connector) },
		"unknown token":   func() answer { return s.get(listPath, unknown) },
		"without tenant":  func() answer { return s.get(listPath, header{"Authorization": h["Authorization"]}) },
		"create":          func() answer { return s.do("POST", listPath, h, `{"name":"x"}`) },
		"form":            func() answer { return s.get(f.path(), nil) },
		"submission":      func() answer { return s.submit(f, nil, body) },
		"submit with key": func() answer { return s.submit(f, header{"Idempotency-Key": "k"}, body) },
		"status":          func() answer { return s.get(status, nil) },
		"assistant, by a personal access token": func() answer {
			return s.post(assisted.with("Authorization", h["Authorization"]), initialize)
		},
	}
	for name, message := range everyMessage() {
		all["assistant, "+name] = func() answer { return s.post(assisted, message) }
	}
	return all
}

// checkLocked checks what waits for the table of programmes or for a row of it. A search may read every programme, so
// it must not run for callers without permission.
func (s *service) checkLocked(t *testing.T, id uuid.UUID, h header) {
	t.Helper()
	stranger := s.reader()
	unknown := s.unknownPAT()
	s.Exec("begin")
	s.Exec("lock table resource.programmes in access exclusive mode")
	s.get(listPath+"?q=a", as(unknown, h.workspace())).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
	s.get(listPath+"?q=a", stranger.with("X-Tenant-Id", h["X-Tenant-Id"])).expect(t, 403, "FORBIDDEN", "")
	s.get(listPath+"?q=a", h.with("X-Tenant-Id", uuid.NewString())).expect(t, 403, "FORBIDDEN", "")
	assisted := assistant("").with("Authorization", h["Authorization"])
	waits := requests{"search": func() answer { return s.get(listPath+"?q=a", h) }}
	for _, message := range []string{
		calling("list_programmes", nil), calling("get_programme", map[string]any{"id": id}),
	} {
		waits[message] = func() answer { return s.post(assisted, message) }
	}
	waits.unavailable(t)
	searching := calling("list_programmes", map[string]any{"q": "x"})
	requests{"the assistant's search": func() answer { return s.post(assisted, searching) }}.unavailable(t)
	s.post(assisted, calling("whoami", nil)).result(t)
	s.Exec("rollback")

	path := listPath + "/" + id.String()
	s.Exec("begin")
	s.Exec("select 1 from resource.programmes where id = $1 for update", id)
	change := func() answer { return s.do("PATCH", path, h, `{"name":"Lost"}`) }
	changes := requests{}
	for i := range 8 { // some wait for the row, and some for a turn of the workspace
		changes[strconv.Itoa(i)] = change
	}
	changes.unavailable(t)
	await.NoError(t, func() error { // a busy machine may spend the request's time before that of the lock
		if a := change(); !strings.Contains(a.Body, busyWords) {
			return errors.New(a.Body)
		}
		return nil
	})
	s.get(path, h).wants(t, 200)
	s.Exec("rollback")
	s.get(path, h).wants(t, 200).lacks(t, "Lost")
	s.do("PATCH", path, h, `{"name":"Kept"}`).wants(t, 200)
}

func password(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal("the database URL cannot be read")
	}
	text, _ := u.User.Password()
	if text == "" {
		t.Fatal("the test's database has no password to look for")
	}
	return text
}

// Without keys every access token would be refused: a new process waits for them, and one that has cached keys stays
// ready.
func TestAPI_WithoutKeysOnlyAccessTokensAre503(t *testing.T) {
	authserver := newAuthserver(t)
	authserver.answer(502, "")
	s := newOwn(t, func(c *Config) { c.JWKSURL, c.RedisURL = authserver.URL, "" })
	workspaceID, user := s.member(perm.ProgrammesRead)
	token := s.token(claims(s.Grant(standing.Confidential, workspaceID, user, resource, perm.ProgrammesRead)))
	list := func() answer { return s.get(listPath, as(token, workspaceID)) }
	ready := func() answer { return s.get("/readyz", nil) }
	requests{"list": list, "ready": ready}.unavailable(t)
	s.get(listPath, s.holding(workspaceID, user, perm.ProgrammesRead)).wants(t, 200)
	authserver.publish(s.key)
	s.eventually(t, 200, list)
	s.eventually(t, 200, ready)
	authserver.answer(502, "")
	list().wants(t, 200)
	ready().wants(t, 200).is(t, `{"keys":"ok","postgres":"ok"}`)
}

// A wire is a proxy between the service and Postgres that can be frozen: it accepts bytes and does not forward them,
// like a server that hangs. cut drops every connection.
type wire struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	open     []net.Conn
	flow     chan struct{} // closed while bytes flow
}

// through is a change that connects a service to Postgres by a new wire.
func through(t *testing.T, into **wire) change {
	return func(c *Config) {
		w, database := newWire(t, string(c.DatabaseURL))
		*into, c.DatabaseURL = w, credential.Secret(database)
	}
}

// newWire returns a wire to the server of the URL, and the URL of the wire.
func newWire(t *testing.T, database string) (*wire, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal("the database URL cannot be read")
	}
	listener := orFail(net.Listen("tcp", "127.0.0.1:0"))(t)
	w := &wire{listener: listener, target: u.Host, flow: make(chan struct{})}
	close(w.flow)
	u.Host = listener.Addr().String()
	go w.accept()
	t.Cleanup(func() {
		_ = listener.Close()
		w.thaw()
		w.cut()
	})
	return w, u.String()
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.open = append(w.open, client, server)
		w.mu.Unlock()
		go w.carry(server, client)
		go w.carry(client, server)
	}
}

func (w *wire) carry(to io.WriteCloser, from io.Reader) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.mu.Lock()
		flow := w.flow
		w.mu.Unlock()
		<-flow
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flow = make(chan struct{})
}

func (w *wire) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.flow:
	default:
		close(w.flow)
	}
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, connection := range w.open {
		_ = connection.Close()
	}
	w.open = nil
}

const busyWords = "Other writes or an import of this workspace are running"

// Writes that wait for an import of their workspace hold so few connections that reads of another workspace are not
// delayed.
func TestWrites_DoNotDelayOtherWorkspaces(t *testing.T) {
	s := ownService(t, waitsFor(await.Long)) // the writes wait until the end of the import
	editing := s.editor()
	other := s.reader()
	_, form := s.form()
	id := s.create(editing, `{"name":"Warm Homes"}`).ID.String()
	var writers []header
	for range 4 {
		writers = append(writers, s.holder(editing.workspace(), perm.ProgrammesRead, perm.ProgrammesWrite))
	}
	tokens := make(chan string, 20)
	for range cap(tokens) {
		tokens <- s.submissionToken(form)
	}
	for name, c := range map[string]struct {
		workspace uuid.UUID
		list      string
		write     func(i int) answer
	}{
		"programmes": {editing.workspace(), "programmes", func(i int) answer {
			if i%2 == 0 {
				return s.do("PATCH", listPath+"/"+id, writers[i%4], fmt.Sprintf(`{"summary":"%d"}`, i))
			}
			return s.do("POST", listPath, writers[i%4], `{"name":"Late"}`)
		}},
		"submissions": {form.workspaceID, form.ID.String(), func(int) answer {
			return s.submit(form, nil, submissionOf(<-tokens, goodAnswers()))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Exec("begin")
			s.Exec("select resource.next_moment($1, $2)", c.workspace, c.list)
			answers := make(chan answer, 20)
			var group sync.WaitGroup
			for i := range cap(answers) {
				group.Go(func() { answers <- c.write(i) })
			}
			s.awaitLocks(1)
			testkit.Quick(t, 600*time.Millisecond, func() {
				s.get(listPath, other).wants(t, 200)
			})
			s.Exec("rollback")
			group.Wait()
			close(answers)
			for a := range answers {
				if a.Status == 503 && (!strings.Contains(a.Body, busyWords) || a.Header.Get("Retry-After") == "") ||
					a.Status >= 400 && a.Status != 503 {
					t.Errorf("%d %s", a.Status, a.Body)
				}
			}
		})
	}
}

// Of the submissions of one workspace a process works on one batch at a time, so that a locked form holds no more than
// one connection.
func TestWorker_LockedFormHoldsOneConnection(t *testing.T) {
	s := newOwn(t)
	_, form := s.form()
	other := s.reader()
	all := []sentSubmission{s.accepted(form), s.accepted(form)}
	s.Exec("begin")
	s.Exec("select resource.next_moment($1, $2)", form.workspaceID, form.ID.String())
	s.run()
	holders := func() int { // this test, and those that wait for it
		return s.Count(`select count(distinct pid) from ` + testkit.Locks +
			` where relation = 'resource.list_locks'::regclass`)
	}
	s.until("the worker waits for the form", func() bool { return holders() == 2 })
	for range 10 {
		s.get(listPath, other).wants(t, 200)
		if n := holders(); n > 2 {
			t.Errorf("%d connections wait for one workspace", n-1)
		}
	}
	s.Exec("rollback")
	for _, one := range all {
		s.processed(one)
	}
}
