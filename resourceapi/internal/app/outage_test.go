package app

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"

	store "github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// unavailable checks for a 503 with Retry-After within the time limit.
func (s *service) unavailable(t *testing.T, do func() answer) {
	t.Helper()
	began := time.Now()
	a := do()
	a.expect(t, 503, "UNAVAILABLE", "")
	if took := time.Since(began); took > 3*testkit.StoreWait { // a client gives up after 30 s
		t.Errorf("took %s", took)
	}
	if a.Header.Get("Retry-After") == "" {
		t.Error("Retry-After is missing")
	}
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
	s := &service{
		Fixture: postgrestest.NewWithJobs(t, store.MigrateJobs),
		t:       t,
		key:     newKey(t, "key-1"),
		log:     &lockedBuffer{},
	}
	postgres, database := newWire(t, s.Database.Resourceapi)
	s.start(database, newAuthserver(t, s.key).URL)
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

	requests := map[string]func() answer{
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
		for name, request := range requests {
			t.Run(name, func(t *testing.T) { s.unavailable(t, request) })
		}
		t.Run("concurrent requests wait no longer", func(t *testing.T) {
			var group sync.WaitGroup
			for range 40 {
				group.Go(func() { s.unavailable(t, list) })
			}
			group.Wait()
		})
		// Requests that need no database are served as usual.
		s.get(listPath, nil).expect(t, 401, "UNAUTHENTICATED", "none")
		s.get(listPath, as("alm_pat_x", workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
		if a := s.get("/healthz", nil); a.Status != 200 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	})
	t.Run("recovered", func(t *testing.T) {
		s.eventually(t, 200, list)
		s.eventually(t, 200, requests["ready"])
	})
	t.Run("gone", func(t *testing.T) {
		_ = postgres.listener.Close()
		postgres.cut()
		for name, request := range requests {
			t.Run(name, func(t *testing.T) { s.unavailable(t, request) })
		}
	})
	token, _ := strings.CutPrefix(h["Authorization"], "Bearer ")
	if log := s.log.String(); strings.Contains(log, token) || strings.Contains(log, password(t, database)) {
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
	s := newService(t)
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
	s := newService(t)
	_, h := s.editor()
	path := listPath + "/" + s.create(h, `{"name":"Warm Homes"}`).ID.String()
	s.Exec("begin")
	s.Exec("select 1 from resource.programmes for update")
	s.unavailable(t, func() (a answer) {
		if a = s.do("PATCH", path, h, `{"name":"Lost"}`); !strings.Contains(a.Body, busyWords) {
			t.Errorf("the message does not say what it waited for: %s", a.Body)
		}
		return a
	})
	if a := s.get(path, h); a.Status != 200 {
		t.Errorf("a reader waits for a writer: %d", a.Status)
	}
	s.Exec("rollback")
	if a := s.get(path, h); !strings.Contains(a.Body, "Warm Homes") {
		t.Errorf("%s", a.Body)
	}
	if a := s.do("PATCH", path, h, `{"name":"Kept"}`); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestAPI_WithoutKeysOnlyAccessTokensAre503(t *testing.T) {
	s := &service{Fixture: postgrestest.New(t), t: t, key: newKey(t, "key-1"), log: &lockedBuffer{}}
	workspaceID, user := s.member(perm.ProgrammesRead)
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	token := s.token(claims(s.Grant(standing.Confidential, workspaceID, user, resource, perm.ProgrammesRead)))
	authserver := newAuthserver(t)
	authserver.answer(502, "")
	s.start(s.Database.Resourceapi, authserver.URL)

	s.unavailable(t, func() answer { return s.get(listPath, as(token, workspaceID)) })
	s.get(listPath, as("a.b.c", workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
	if a := s.get(listPath, as(pat, workspaceID)); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	authserver.publish(s.key)
	s.eventually(t, 200, func() answer { return s.get(listPath, as(token, workspaceID)) })
	authserver.answer(502, "")
	if a := s.get(listPath, as(token, workspaceID)); a.Status != 200 {
		t.Errorf("the keys are not cached: %d %s", a.Status, a.Body)
	}
}
