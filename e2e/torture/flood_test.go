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
	slowConnections = 2_000
	// of a connection that sends its request one byte a second; the server's limit is 15
	cutWithin       = 18 * time.Second
	goodAtMost      = 250 * time.Millisecond
	memoryAtMost    = 256 << 10 // KiB, of one service
	recoveredWithin = 5 * time.Second
	guessesASecond  = 20 // of secrets and of tokens, at least
)

// Strangers hold thousands of slow connections, send bodies without end, and try secrets and tokens, while clients
// work: these are answered, the strangers are cut off, and no service takes more than its share of memory.
func TestFloodHarmsNobodyElse(t *testing.T) {
	lasts := 22 * time.Second // the slow ones are cut off within it
	if harness.Long() {
		lasts = 5 * time.Minute
	}
	running := harness.Private(t, harness.Options{})
	p := harness.Enter(t, running, &met)
	office := p.Office(t)
	connector, app := office.Connector(t, harness.ReadProgrammes), office.Confidential(t, "", harness.ReadProgrammes)
	good := &goodTraffic{
		p:         p,
		office:    office,
		connector: connector,
		tokens:    connector.Connect(t, p.Person(t, office.Head)),
	}
	stranger := newGuesser(t, p.BaseURL, app, connector, connector.Connect(t, p.Person(t, office.Head)))
	harness.Note(
		t,
		"%d slow connections, endless bodies, %v wrong secrets and %v wrong tokens refused in %s",
		slowConnections,
		harness.Later[int](
			func() int { return int(stranger.secrets.Load()) },
		),
		harness.Later[int](func() int { return int(stranger.tokens.Load()) }),
		lasts,
	)
	addresses := addressesOf(t, running)

	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var strangers sync.WaitGroup
	var late atomic.Int64
	for i := range slowConnections {
		strangers.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond) // they come within two seconds
			for ctx.Err() == nil {
				if held := trickle(ctx, addresses[i%len(addresses)], slowRequests()[i/len(addresses)%len(slowRequests())]); held > cutWithin {
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
	stranger.wantsNothingFound(t, lasts)
	for _, service := range append(slices.Clone(running.Authservers), running.Resourceapi) {
		memory := harness.PeakMemory(t, service.PID())
		t.Logf("%s took %d MiB at most", service.Name, memory>>10)
		if memory > memoryAtMost {
			t.Errorf("%s took %d MiB", service.Name, memory>>10)
		}
	}
}

// goodTraffic is a client that lists programmes and refreshes.
type goodTraffic struct {
	p         *harness.Product
	office    harness.Office
	connector harness.Connector
	tokens    harness.Tokens

	took    []time.Duration
	refused []harness.Answer
}

func (g *goodTraffic) flows(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		g.ask(t, func() (harness.Answer, error) {
			return g.p.In(g.office.Workspace, g.office.Token).Try(t, http.MethodGet, harness.ListPath, "", "")
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

// judge wants every request answered, and in the long form soon.
func (g *goodTraffic) judge(t *testing.T) {
	t.Helper()
	slices.Sort(g.took)
	p99 := g.took[len(g.took)*99/100]
	t.Logf("%d good requests, the slowest of a hundred within %s", len(g.took), p99)
	if len(g.refused) > 0 {
		t.Errorf("%d of %d good requests failed, the first so:\n%s", len(g.refused), len(g.took), g.refused[0])
	}
	if harness.Long() && p99 > goodAtMost {
		t.Errorf("of good requests one in a hundred took longer than %s, want %s", p99, goodAtMost)
	}
}

func (g *goodTraffic) wantsRecovery(t *testing.T) {
	t.Helper()
	began := time.Now()
	g.p.In(g.office.Workspace, g.office.Token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
	g.tokens = g.connector.Refresh(t, g.tokens.RefreshToken).Tokens(t)
	if took := time.Since(began); took > recoveredWithin {
		t.Errorf("after the flood two answers took %s", took)
	}
}
