package torture

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// connectionsEach is how many connections a round has: half are refreshed, half revoked.
const connectionsEach = 8

// Everything is killed at random moments while all kinds of work are under way. Nothing that was acknowledged is lost or doubled: no
// revocation, token, registration, programme or submission.
func TestKilledAtRandom(t *testing.T) {
	times := rounds(5, 200)
	running := harness.Private(t, harness.Options{})
	p := harness.Enter(t, running, &met)
	victims := victimsOf(running)
	note(t, "%d kills of each of %d: authserver, resourceapi with its worker, redis, postgres", times, len(victims))
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
		w.wantsSubmissions(t)
	}
}

type victim struct {
	name    string
	kill    func()
	restart func(context.Context) error
}

func victimsOf(s *stack.Stack) []victim {
	return []victim{
		{"authserver", s.Authservers[0].Kill, s.Authservers[0].Restart},
		{"resourceapi", s.Resourceapi.Kill, s.Resourceapi.Restart},
		{"redis", s.Redis.Kill, s.Redis.Restart},
		{"postgres", s.Postgres.Kill, s.Postgres.Restart},
	}
}

// survives lets the clerks work, kills the victim meanwhile, and looks whether everything is kept.
func (w *workplace) survives(t *testing.T, v victim) {
	t.Helper()
	var connections []harness.Tokens
	for range connectionsEach {
		connections = append(connections, w.connector.Connect(t, w.head))
	}
	ctx, closing := context.WithCancel(t.Context())
	defer closing()
	clerks := w.work(ctx, t, connections)
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
