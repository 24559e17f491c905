package app

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// silently makes a service wait as short for a silent store as a busy machine allows.
func silently(c *Config) { c.StoreWait = testkit.SilentStoreWait }

// requests are sent at the same time, because each waits for a silent store.
type requests map[string]func() answer

// unavailable checks for a 503 with Retry-After within the time limit.
func (r requests) unavailable(t *testing.T) {
	t.Helper()
	began := time.Now()
	for name, a := range r.send() {
		a.header(t, "Retry-After", "*")
		if a.expect(t, 503, "UNAVAILABLE", ""); a.Status != 503 {
			t.Errorf("%s: %d", name, a.Status)
		}
	}
	if took := time.Since(began); took > 3*testkit.StoreWait { // a client gives up after 30 s
		t.Errorf("took %s", took)
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

func TestAPI_Returns503WithoutPostgres(t *testing.T) {
	t.Parallel()
	var postgres *wire
	s := ownService(t, through(t, &postgres))
	workspaceID, h := s.editor()
	user := s.User()
	s.Member(workspaceID, user, perm.ProgrammesRead)
	connector := as(
		s.token(claims(s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead))),
		workspaceID,
	)
	unknown := as(s.unknownPAT(), workspaceID)
	id := s.Programmes(workspaceID, 3)[0].String()
	list := func() answer { return s.get(listPath, h) }
	s.eventually(t, 200, list)

	all := requests{
		"list":           list,
		"search":         func() answer { return s.get(listPath+"?q=a", h) },
		"read":           func() answer { return s.get(listPath+"/"+id, h) },
		"connector":      func() answer { return s.get(listPath, connector) },
		"unknown token":  func() answer { return s.get(listPath, unknown) },
		"without tenant": func() answer { return s.get(listPath, header{"Authorization": h["Authorization"]}) },
		"create":         func() answer { return s.do("POST", listPath, h, `{"name":"x"}`) },
		"ready":          func() answer { return s.get("/readyz", nil) },
	}
	t.Run("hanging", func(t *testing.T) {
		postgres.freeze()
		defer postgres.thaw()
		all.unavailable(t)
		same := requests{} // which wait no longer: in turn for the connections, they would wait four times as long
		for i := range 40 {
			same[strconv.Itoa(i)] = list
		}
		same.unavailable(t)
		// Requests that need no database are served as usual.
		s.get(listPath, nil).expect(t, 401, "UNAUTHENTICATED", "none")
		s.get(listPath, as("alm_pat_x", workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
		s.get("/healthz", nil).wants(t, 200)
	})
	t.Run("recovered", func(t *testing.T) {
		s.eventually(t, 200, list)
		s.eventually(t, 200, all["ready"])
	})
	t.Run("gone", func(t *testing.T) {
		_ = postgres.listener.Close()
		postgres.cut()
		all.unavailable(t)
	})
	token, _ := strings.CutPrefix(h["Authorization"], "Bearer ")
	secret := password(t, s.config.DatabaseURL.Reveal())
	if log := s.log.String(); strings.Contains(log, token) || strings.Contains(log, secret) {
		t.Error("the log contains a secret")
	}
	if !strings.Contains(s.log.String(), `"cause"`) {
		t.Error("the cause is not in the log")
	}
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

func TestAPI_RecoversFromClosedConnections(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, pat := s.reader()
	list := func() answer { return s.get(listPath, as(pat, workspaceID)) }
	s.eventually(t, 200, list)
	s.EndSessions("almoner-resourceapi")
	for range 8 {
		if a := list(); a.Status != 200 && a.Status != 503 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	s.eventually(t, 200, list)
}

func TestAPI_WriteThatWaitsForLockIs503(t *testing.T) {
	t.Parallel()
	s := ownService(t, silently)
	_, h := s.editor()
	path := listPath + "/" + s.create(h, `{"name":"Warm Homes"}`).ID.String()
	s.Exec("begin")
	s.Exec("select 1 from resource.programmes where {mine} for update")
	requests{"change": func() (a answer) {
		if a = s.do("PATCH", path, h, `{"name":"Lost"}`); !strings.Contains(a.Body, busyWords) {
			t.Errorf("the message does not say what it waited for: %s", a.Body)
		}
		return a
	}}.unavailable(t)
	s.get(path, h).wants(t, 200)
	s.Exec("rollback")
	s.get(path, h).has(t, "Warm Homes")
	s.do("PATCH", path, h, `{"name":"Kept"}`).wants(t, 200)
}

func TestAPI_WithoutKeysOnlyAccessTokensAre503(t *testing.T) {
	t.Parallel()
	authserver := newAuthserver(t)
	authserver.answer(502, "")
	s := ownService(t, func(c *Config) { c.JWKSURL = authserver.URL })
	workspaceID, user := s.member(perm.ProgrammesRead)
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	token := s.token(claims(s.Grant(standing.Confidential, workspaceID, user, resource, perm.ProgrammesRead)))
	requests{"list": func() answer { return s.get(listPath, as(token, workspaceID)) }}.unavailable(t)
	s.get(listPath, as("a.b.c", workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
	s.get(listPath, as(pat, workspaceID)).wants(t, 200)
	authserver.publish(s.key)
	s.eventually(t, 200, func() answer { return s.get(listPath, as(token, workspaceID)) })
	authserver.answer(502, "")
	s.get(listPath, as(token, workspaceID)).wants(t, 200)
}
