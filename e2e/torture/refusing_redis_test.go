package torture

import (
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A refusal is a way for Redis to answer and not to do its work. Commands begin and end it.
type refusal struct {
	name       string
	begin, end []string
}

func refusals() []refusal {
	nowhere := "REPLICAOF 127.0.0.1 1" // where no master is
	return []refusal{
		{"OOM", []string{"CONFIG SET maxmemory 1mb"}, []string{"CONFIG SET maxmemory 0"}},
		{"READONLY", []string{nowhere}, []string{"REPLICAOF NO ONE"}},
		{
			"MASTERDOWN",
			[]string{"CONFIG SET replica-serve-stale-data no", nowhere},
			[]string{"REPLICAOF NO ONE", "CONFIG SET replica-serve-stale-data yes"},
		},
		{"NOREPLICAS", []string{"CONFIG SET min-replicas-to-write 1"}, []string{"CONFIG SET min-replicas-to-write 0"}},
	}
}

// A Redis that refuses has decided nothing: at once afterwards everything is as it was.
func TestRedisRefuses(t *testing.T) {
	times := harness.Rounds(1, 200)
	harness.Note(t, "%d times each: OOM, READONLY, MASTERDOWN, NOREPLICAS", times)
	s := newRedisStage(t)
	for _, r := range refusals() {
		t.Run(r.name, func(t *testing.T) {
			for range times {
				d := s.deposit(t, func() {})
				s.tell(t, r.begin...)
				d.wantsUnavailable(t)
				d.wantsUnnoticed(t)
				s.tell(t, r.end...)
				d.wantsCode(t)
				d.wantsKept(t)
			}
		})
	}
}

// Redis forgets scripts when it starts, and when it is told to: nobody notices.
func TestRedisForgetsScripts(t *testing.T) {
	times := harness.Rounds(10, 2_000)
	harness.Note(t, "SCRIPT FLUSH %d times", times)
	s := newRedisStage(t)
	tokens := s.connector.Connect(t, s.Person(t, s.office.Head))
	for range times {
		s.tell(t, "SCRIPT FLUSH SYNC")
		tokens = s.connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	}
	s.connector.WantsAlive(t, tokens)
}

func (s *redisStage) tell(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if _, err := tellRedis(s.trouble.running.RedisURL, command); err != nil {
			t.Fatal(err)
		}
	}
}
