package torture

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

const (
	// cutWithin applies to a connection that sends one byte a second; the server's limit is 15 s.
	cutWithin       = 18 * time.Second
	goodAtMost      = 250 * time.Millisecond
	memoryAtMost    = 256 << 10 // KiB, of one service
	recoveredWithin = 5 * time.Second
	guessesASecond  = 20 // minimum, of secrets and of tokens each
)

// TestFlood_LeavesOtherClientsWorking opens thousands of slow connections, sends endless bodies and guesses secrets and
// tokens while good clients work. The good clients get their responses, the others are cut off, and no service exceeds
// its memory limit.
func TestFlood_LeavesOtherClientsWorking(t *testing.T) {
	onlyLong(t, "flood", "it is a measurement; TestServe_EndsSlowRequests of shared/net/web and "+
		"TestRefresh_UnknownTokenRevokesNothing of e2e have its rules")
	seconds, slowConnections := harness.Rounds(5, 300), harness.Rounds(500, 2_000)
	lasts := time.Duration(seconds) * time.Second // slow connections are cut off after 15 s
	running := harness.Private(t, harness.Options{})
	of := newSite(t, running)
	good := newHonest(t, of.Product)
	good.kinds = []honestKind{
		{name: "refresh", want: http.StatusOK, ask: good.refresh},
		{name: "list", want: http.StatusOK, ask: good.get(harness.ListPath)},
	}
	stranger := newGuesser(t, of.BaseURL, of.app, of.connector, of.connector.Connect(t, of.owner))
	harness.Record(t, "%d slow connections, endless bodies, %v wrong secrets and %v wrong tokens refused in %s",
		slowConnections, harness.Deferred[int](func() int { return int(stranger.secrets.Load()) }),
		harness.Deferred[int](func() int { return int(stranger.tokens.Load()) }), lasts)
	addresses := addressesOf(t, running)

	ctx := lasting(t, lasts, func() bool { return stranger.refusedEnough(lasts) })
	var strangers sync.WaitGroup
	var late atomic.Int64
	for i := range slowConnections {
		strangers.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond) // all connect within one or two seconds
			for ctx.Err() == nil {
				beginning := slowRequests()[i/len(addresses)%len(slowRequests())]
				if trickle(ctx, addresses[i%len(addresses)], beginning) > atMost(cutWithin) {
					late.Add(1)
				}
			}
		})
	}
	for range guessersAtOnce {
		strangers.Go(func() { stranger.guess(ctx, t) })
		strangers.Go(func() { floodsWithBodies(ctx, addresses) })
	}
	summary := good.work(ctx, t, "the flood")
	strangers.Wait()
	if late.Load() > 0 {
		t.Errorf("%d slow connections were held for more than %s", late.Load(), cutWithin)
	}
	good.wantRecovery(t)
	t.Log(summary)
	stranger.wantsNothingFound(t)
	for _, service := range append(slices.Clone(running.Authservers), running.Resourceapi) {
		memory := harness.ProcessStatus(t, service.PID(), "VmHWM:")
		t.Logf("%s used at most %d MiB", service.Name, memory>>10)
		if memory > memoryAtMost {
			t.Errorf("%s used %d MiB", service.Name, memory>>10)
		}
	}
}

// wantRecovery checks that requests succeed soon after a flood, and in the long form that they were fast during it.
func (h *honestUsers) wantRecovery(t *testing.T) {
	t.Helper()
	began := time.Now()
	for _, kind := range h.kinds {
		answer, err := kind.ask(t)
		must(t, err)
		answer.Wants(t, kind.want)
	}
	if took := time.Since(began); took > atMost(recoveredWithin) {
		t.Errorf("after the flood two responses took %s", took)
	}
	p99 := slowestOfAHundred(slices.Concat(slices.Collect(maps.Values(h.took))...))
	if harness.Long() && p99 > goodAtMost {
		t.Errorf("p99 of good requests is %s, want at most %s", p99, goodAtMost)
	}
}
