package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// TestKill_AtRandomLosesNothingAcknowledged kills processes and stores at random moments during all kinds of work.
// Nothing acknowledged may be lost or doubled: no revocation, token, registration, programme, submission or import.
func TestKill_AtRandomLosesNothingAcknowledged(t *testing.T) {
	parallelIfShort(t)
	times := harness.Rounds(1, 200)
	running := harness.Private(t, harness.Options{Worker: true, StopsStores: true})
	p := harness.NewProduct(t, running, &seenSecrets)
	victims := []victim{
		{"the worker", running.Worker}, {"authserver", running.Authservers[0]},
		{"resourceapi", running.Resourceapi}, {"redis", running.Redis}, {"postgres", running.Postgres},
	}
	const what = "%d kills of each of %d: the worker, authserver, resourceapi, redis, postgres"
	harness.Record(t, what, times, len(victims))
	var workloads []*workload
	for round := range times * len(victims) {
		victim := victims[round%len(victims)]
		w := newWorkload(t, p)
		workloads = append(workloads, w)
		w.survives(t, victim)
		if t.Failed() {
			t.Fatalf("after %d kills, the last of %s", round+1, victim.name)
		}
	}
	for _, w := range workloads {
		w.wantsCommands(t)
	}
}

// A victim is a process or a store that is killed.
type victim struct {
	name string
	server
}

// survives kills the victim while the clients run, and checks that all acknowledged work is kept.
func (w *workload) survives(t *testing.T, v victim) {
	t.Helper()
	w.whileClientsWork(t, func() {
		v.Kill()
		must(t, v.Restart(context.WithoutCancel(t.Context())))
	})
	w.waitForCalm(t)
	w.wantsAllKept(t)
}

// whileClientsWork does something while the clients run, after each kind of their work was acknowledged once, so that
// all of them can be affected.
func (w *workload) whileClientsWork(t *testing.T, do func()) {
	t.Helper()
	all := w.newStock(t)
	ctx, closing := context.WithCancel(t.Context())
	defer closing()
	clients := w.work(ctx, t, all)
	await.NoError(t, w.missing)
	time.Sleep(rand.N(150 * time.Millisecond))
	do()
	closing()
	clients.Wait()
}

// waitForCalm waits until each service answers several times in a row.
func (s site) waitForCalm(t *testing.T) {
	t.Helper()
	s.Database.Reconnect()
	const inARow = 4
	good := 0
	await.True(t, "everything succeeds", func() bool {
		list, listed := s.In(s.Workspace, s.Token).Try(t, http.MethodGet, harness.ListPath, "", "")
		clients, read := s.As(s.Token).Try(t, http.MethodGet, s.Clients(), "", "")
		if listed != nil || list.Status != http.StatusOK || read != nil || clients.Status != http.StatusOK ||
			tryCode(t, s.connector.Begin(), s.owner) == "" {
			good = 0
			return false
		}
		good++
		return good == inARow
	})
}

// These functions check a workload after a kill.

// missing returns an error if a kind of work has no acknowledged request.
func (w *workload) missing() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for kind, count := range map[string]int{
		"refreshed connection": len(w.current), "confidential token": len(w.confidential),
		"personal access token": len(w.personal), "revocation": len(w.revoked), "registration": len(w.clients),
		"programme": len(w.programmes), "submission": len(w.submissions), "import": len(w.imports),
	} {
		if count == 0 {
			return errors.New("no " + kind + " was acknowledged")
		}
	}
	return nil
}

// wantsAllKept checks all acknowledged work except submissions and imports that are not processed yet.
func (w *workload) wantsAllKept(t *testing.T) {
	t.Helper()
	for _, tokens := range w.revoked {
		w.connector.WantsRevoked(t, tokens)
	}
	for _, tokens := range w.current {
		w.connector.WantsWorking(t, tokens)
	}
	for _, tokens := range w.confidential {
		w.In(w.Workspace, tokens.AccessToken).Get(t, harness.ListPath).Wants(t, http.StatusOK)
	}
	for name, token := range w.personal {
		if token != "" {
			w.In(w.Workspace, token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
		}
		w.wantsOne(t, "personal access tokens of one form",
			`select count(*) from account.personal_access_tokens where tenant_id = $1 and name = $2`, name)
	}
	for _, id := range w.clients {
		w.As(w.Token).Get(t, w.Clients()+"/"+id).Wants(t, http.StatusOK)
	}
	for name, id := range w.programmes {
		w.In(w.Workspace, w.Token).Get(t, harness.ListPath+"/"+id).Wants(t, http.StatusOK)
		w.wantsOne(t, "programmes of one request", programmesOfName, name)
	}
}

const programmesOfName = `select count(*) from resource.programmes where tenant_id = $1 and name = $2`

// wantsOne checks that the workspace has exactly one row of that name.
func (w *workload) wantsOne(t *testing.T, what, sql, name string) {
	t.Helper()
	if count := w.Database.Count(t, sql, w.Workspace.ID, name); count != 1 {
		t.Errorf("%d %s", count, what)
	}
}

// wantsCommands checks that every accepted submission and import was processed exactly once in effect.
func (w *workload) wantsCommands(t *testing.T) {
	t.Helper()
	const supporters = `select count(*) from resource.supporters where tenant_id = $1 and email = $2`
	const submissions = `select count(*) from resource.submissions where tenant_id = $1 and answers->>'email' = $2`
	for email, path := range w.submissions {
		wantsProcessed(t, "a submission", w.API(), path)
		w.wantsOne(t, "supporters of one submission", supporters, email)
		w.wantsOne(t, "submissions of one", submissions, email)
	}
	for name, path := range w.imports {
		wantsProcessed(t, "an import", w.In(w.Workspace, w.Token), path)
		for _, row := range rowsOf(name) {
			w.wantsOne(t, "programmes of one imported row", programmesOfName, row)
		}
	}
}

func wantsProcessed(t *testing.T, what string, api harness.API, path string) {
	t.Helper()
	await.True(t, what+" is processed", func() bool {
		return api.Get(t, path).Wants(t, http.StatusOK).Object(t)["status"] == "processed"
	})
}
