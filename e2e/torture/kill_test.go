package torture

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// Everything is killed at random moments while all kinds of work are under way. Nothing that was acknowledged is lost
// or doubled: no revocation, token, registration, programme, submission or import.
func TestKilledAtRandom(t *testing.T) {
	times := harness.Rounds(5, 200)
	running := harness.Private(t, harness.Options{Worker: true})
	p := harness.Enter(t, running, &met)
	victims := victimsOf(running)
	harness.Note(t, "%d kills of each of %d: the worker, authserver, resourceapi, redis, postgres", times, len(victims))
	var places []*workplace
	for round := range times * len(victims) {
		victim := victims[round%len(victims)]
		w := newWorkplace(t, p)
		places = append(places, w)
		w.survives(t, victim)
		if t.Failed() {
			t.Fatalf("after %d kills, the last of %s", round+1, victim.name)
		}
	}
	for _, w := range places {
		w.wantsCommands(t)
	}
}

type victim struct {
	name    string
	kill    func()
	restart func(context.Context) error
}

func victimsOf(s *stack.Stack) []victim {
	return []victim{ // the worker first: what it was doing is taken up a minute later
		{"the worker", s.Worker.Kill, s.Worker.Restart},
		{"authserver", s.Authservers[0].Kill, s.Authservers[0].Restart},
		{"resourceapi", s.Resourceapi.Kill, s.Resourceapi.Restart},
		{"redis", s.Redis.Kill, s.Redis.Restart},
		{"postgres", s.Postgres.Kill, s.Postgres.Restart},
	}
}

// survives lets the clerks work, kills the victim meanwhile, and looks whether everything is kept.
func (w *workplace) survives(t *testing.T, v victim) {
	t.Helper()
	all := w.newStock(t)
	ctx, closing := context.WithCancel(t.Context())
	defer closing()
	clerks := w.work(ctx, t, all)
	w.waitForWork(t)
	time.Sleep(rand.N(150 * time.Millisecond))
	v.kill()
	if err := v.restart(context.WithoutCancel(t.Context())); err != nil {
		t.Fatalf("%s does not start again: %v", v.name, err)
	}
	closing()
	clerks.Wait()
	w.World.Reconnect()
	w.waitForCalm(t)
	w.wantsAllKept(t)
}

// waitForWork waits until something of each kind was acknowledged, so that no victim is tried without.
func (w *workplace) waitForWork(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(calmWithin); w.missing() != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("no %s was acknowledged within %s", w.missing(), calmWithin)
			return
		}
	}
}

// waitForCalm waits until a new connection can be made.
func (w *workplace) waitForCalm(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(calmWithin); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if w.connector.Begin().TryCode(t, w.head) != "" {
			return
		}
	}
	t.Fatalf("no consent goes through within %s", calmWithin)
}
