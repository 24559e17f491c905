package torture

import (
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A refusal is a state in which Redis responds but does not do its work. Commands begin and end it.
type refusal struct {
	name       string
	begin, end []string
}

func refusals() []refusal {
	nowhere := "REPLICAOF 127.0.0.1 1" // no master is there
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

// TestRedis_RefusalLosesNothing checks that a refusing Redis decides nothing: everything works again immediately
// afterwards.
func TestRedis_RefusalLosesNothing(t *testing.T) {
	times := harness.Rounds(1, 200)
	harness.Record(t, "%d times each: OOM, READONLY, MASTERDOWN, NOREPLICAS", times)
	s := newRedisStage(t)
	for _, r := range refusals() {
		t.Run(r.name, func(t *testing.T) {
			for range times {
				d := newBaseline(t, s.site, func() {})
				s.tell(t, r.begin...)
				d.wantsUnavailable(t)
				d.wantsUnaffected(t)
				s.tell(t, r.end...)
				d.wantsCode(t)
				d.wantsKept(t)
			}
		})
	}
}

// TestRedis_ScriptFlushIsUnnoticed flushes the scripts, which Redis also forgets when it restarts: no client notices.
func TestRedis_ScriptFlushIsUnnoticed(t *testing.T) {
	times := harness.Rounds(4, 2_000)
	harness.Record(t, "SCRIPT FLUSH %d times", times)
	s := newRedisStage(t)
	tokens := s.connector.Connect(t, s.owner)
	for range times {
		s.tell(t, "SCRIPT FLUSH SYNC")
		tokens = s.connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	}
	s.connector.WantsWorking(t, tokens)
}

func (s *redisStage) tell(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if _, err := localstore.AskRedis(s.trouble.running.RedisURL, command); err != nil {
			t.Fatal(err)
		}
	}
}
