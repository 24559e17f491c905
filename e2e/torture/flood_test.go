package torture

import (
	"context"
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
	p := harness.NewProduct(t, running, &seenSecrets)
	ws := p.NewWorkspace(t)
	connector, app := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	good := &goodTraffic{p: p, ws: ws, connector: connector, tokens: connector.Connect(t, p.Person(t, ws.Owner))}
	stranger := newGuesser(t, p.BaseURL, app, connector, connector.Connect(t, p.Person(t, ws.Owner)))
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
	good.flows(ctx, t)
	strangers.Wait()
	if late.Load() > 0 {
		t.Errorf("%d slow connections were held for more than %s", late.Load(), cutWithin)
	}
	good.wantsRecovery(t)
	good.judge(t)
	stranger.wantsNothingFound(t)
	for _, service := range append(slices.Clone(running.Authservers), running.Resourceapi) {
		memory := harness.ProcessStatus(t, service.PID(), "VmHWM:")
		t.Logf("%s used at most %d MiB", service.Name, memory>>10)
		if memory > memoryAtMost {
			t.Errorf("%s used %d MiB", service.Name, memory>>10)
		}
	}
}

// goodTraffic is a client that lists programmes and refreshes.
type goodTraffic struct {
	p         *harness.Product
	ws        harness.TestWorkspace
	connector harness.Connector
	tokens    harness.Tokens

	took    []time.Duration
	refused []harness.Answer
}

func (g *goodTraffic) flows(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		g.ask(t, func() (harness.Answer, error) {
			return g.p.In(g.ws.Workspace, g.ws.Token).Try(t, http.MethodGet, harness.ListPath, "", "")
		})
		answer := g.ask(t, func() (harness.Answer, error) {
			return g.connector.TryPost(t, g.connector.RefreshForm(g.tokens.RefreshToken))
		})
		if answer.Status == http.StatusOK {
			g.tokens = answer.Tokens(t)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (g *goodTraffic) ask(t *testing.T, request func() (harness.Answer, error)) harness.Answer {
	t.Helper()
	began := time.Now()
	answer, err := request()
	g.took = append(g.took, time.Since(began))
	if err != nil {
		answer.Body = []byte(err.Error())
	}
	if answer.Status != http.StatusOK {
		g.refused = append(g.refused, answer)
	}
	return answer
}

// judge checks that every request succeeded, and in the long form that responses were fast.
func (g *goodTraffic) judge(t *testing.T) {
	t.Helper()
	slices.Sort(g.took)
	p99 := g.took[len(g.took)*99/100]
	t.Logf("%d good requests, p99 %s", len(g.took), p99)
	if len(g.refused) > 0 {
		t.Errorf("%d of %d good requests failed, the first with:\n%s", len(g.refused), len(g.took), g.refused[0])
	}
	if harness.Long() && p99 > goodAtMost {
		t.Errorf("p99 of good requests is %s, want at most %s", p99, goodAtMost)
	}
}

func (g *goodTraffic) wantsRecovery(t *testing.T) {
	t.Helper()
	began := time.Now()
	g.p.In(g.ws.Workspace, g.ws.Token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
	g.tokens = g.connector.Refresh(t, g.tokens.RefreshToken).Tokens(t)
	if took := time.Since(began); took > atMost(recoveredWithin) {
		t.Errorf("after the flood two responses took %s", took)
	}
}
