package redis

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestHealthGate_WaitsForServerWithinLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p healthGate
		answers := func(within time.Duration) bool { return p.available(t.Context(), within) }
		if !answers(0) {
			t.Error("the zero value reports a silent server")
		}
		probes, recovered := 0, time.Now().Add(time.Second)
		probe := func() bool {
			probes++
			return time.Now().After(recovered)
		}
		p.stopped(probe)
		p.stopped(func() bool { t.Error("probed twice"); return true })
		began := time.Now()
		if answers(200*time.Millisecond) || time.Since(began) != 200*time.Millisecond {
			t.Errorf("after %s", time.Since(began))
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if p.available(over, time.Hour) {
			t.Error("reports true after the caller's context ended")
		}
		if !answers(time.Minute) || time.Since(began) > 2*time.Second {
			t.Errorf("after %s", time.Since(began))
		}
		if !answers(0) || probes < 10 {
			t.Errorf("%d probes", probes)
		}
	})
}

// A call to a server that does not answer may have been received. The next ones are refused and certainly were not,
// until the server answers again.
func TestRun_SilentServerIsSentNothing(t *testing.T) {
	server := testkit.NewRedis(t)
	rdb, err := Connect(credential.Fixed(credential.Secret(server.URL)), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rdb.Close() }()
	grants, id := NewGrants(rdb), uuid.New()
	revoke := func() error { return grants.Revoke(t.Context(), id, grant.ByUser, time.Now().Add(time.Hour)) }
	await.NoError(t, revoke) // a busy machine may need more than the limit of a call
	if !grants.Responds(t.Context(), id) {
		t.Error("a server that answered does not respond")
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := revoke(); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, grant.ErrNotCommitted) {
		t.Errorf("the first call: %v, want one that may have been received", err)
	}
	if grants.Responds(t.Context(), id) {
		t.Error("a silent server responds")
	}
	if err := revoke(); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, grant.ErrNotCommitted) {
		t.Errorf("the next call: %v, want one that was not sent", err)
	}
	server.Resume()
	await.NoError(t, revoke)
}

// A deadline by the clock of a server that no call has reached yet costs a query.
func TestDeadline_IsByClockOfServer(t *testing.T) {
	process := testkit.NewRedis(t)
	rdb, err := Connect(credential.Fixed(credential.Secret(process.URL)), testkit.StoreWait)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rdb.Close() }()
	s := newScripts(rdb)
	one := s.server(t.Context(), "k")
	if deadline, err := s.deadline(context.Background(), one, "k"); deadline != 0 || err != nil {
		t.Errorf("without a deadline: %d %v", deadline, err)
	}
	end := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), end)
	defer cancel()
	began := time.Now()
	deadline, err := s.deadline(ctx, one, "k")
	latest := end.UnixMilli() // both clocks are this machine's
	earliest := end.Add(-time.Since(began) - drift(time.Hour) - 2*time.Millisecond).UnixMilli()
	if err != nil || deadline < earliest || deadline > latest {
		t.Errorf("in an hour: %d %v, want %d to %d", deadline, err, earliest, latest)
	}
	process.Stop()
	if again, err := s.deadline(ctx, one, "k"); again != deadline || err != nil {
		t.Errorf("of a known clock: %d %v, want %d", again, err, deadline)
	}
	if unknown, err := newScripts(rdb).deadline(ctx, new(server), "k"); unknown != 0 || err == nil {
		t.Errorf("of a clock that cannot be queried: %d %v", unknown, err)
	}
}

// The estimate of a server's clock is a lower bound, whatever the rates of the two clocks (500 parts per million).
func TestClock_DeadlineIsNeverLate(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int64) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	if got := new(clock).deadline(start); got != 0 {
		t.Errorf("without a response: %d", got)
	}
	const first = 1_000 + 100_000 - 50 // the bound at 200 s by the first response, which came at 100 s
	for what, second := range map[string]struct{ server, sent, received, want int64 }{
		"a tighter one":                {51_000, 149_990, 150_000, 51_000 + 50_000 - 25},
		"a slower one":                 {50_000, 140_000, 150_000, first},
		"the lowest that it can be":    {40_979, 140_000, 150_000, first},
		"of a clock that was set back": {40_978, 140_000, 150_000, 40_978 + 50_000 - 25},
		"of a clock that was set on":   {900_000, 140_000, 150_000, 900_000 + 50_000 - 25},
	} {
		var one clock
		one.observe(clockSample{server: 1_000, sent: at(0), received: at(100_000)})
		if got := one.deadline(at(200_000)); got != first {
			t.Errorf("one response: %d, want %d", got, first)
		}
		one.observe(clockSample{server: second.server, sent: at(second.sent), received: at(second.received)})
		if got := one.deadline(at(200_000)); got != second.want {
			t.Errorf("%s: %d, want %d", what, got, second.want)
		}
	}
}
