package torture

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// The suites of Postgres: while it is away, slow or held up, callers are told 503, and it is all normal again by itself
// soon after. Nothing is half done: a grant goes on with the token that its client has, or, where an answer was lost, a
// replay ends it.

// normalWithin is how long the product may take once Postgres is well again.
const normalWithin = 5 * time.Second

// A postgresStage is a product of two processes that reach Postgres through a relay.
type postgresStage struct {
	*harness.Product
	running   *stack.Stack
	relay     *harness.Relay
	office    harness.Office
	connector harness.Connector
	app       harness.ConfidentialApp
}

func newPostgresStage(t *testing.T) *postgresStage {
	t.Helper()
	relay := harness.NewRelay(t)
	running := harness.Private(t, harness.Options{Authservers: 2, Between: relay})
	p := harness.Enter(t, running, &met)
	office := p.Office(t)
	return &postgresStage{
		p,
		running,
		relay,
		office,
		office.Connector(t, harness.ReadProgrammes),
		office.Confidential(t, "", harness.ReadProgrammes),
	}
}

func (s *postgresStage) deposit(t *testing.T) *deposit {
	t.Helper()
	return newDeposit(t, s.Product, s.office, s.connector, s.app, func() {})
}

func TestPostgresIsAway(t *testing.T) {
	besideOthers(t)
	times := harness.Rounds(1, 100)
	harness.Note(t, "Postgres %d times each: stopped and started, killed and started", times)
	s := newPostgresStage(t)
	for _, away := range []struct {
		name string
		end  func()
	}{{"restart", s.running.Postgres.Stop}, {"immediate crash", s.running.Postgres.Kill}} {
		t.Run(away.name, func(t *testing.T) {
			for range times {
				d := s.deposit(t)
				busy := s.refreshing(t, 4)
				away.end()
				d.wantsUnavailable(t)
				d.In(d.Workspace, d.Token).
					Get(t, harness.ListPath).
					WantsRetryAfter(t).
					WantsNested(t, http.StatusServiceUnavailable, "UNAVAILABLE")
				must(t, s.running.Postgres.Restart(context.WithoutCancel(t.Context())))
				s.wantsNormalSoon(t)
				busy()
				d.wantsCode(t)
				d.wantsKept(t)
			}
		})
	}
}

// refreshing lets clients refresh until the returned function is called, which checks that none was half refused:
// whoever was told that a token is no good had lost an answer, and its whole grant is dead.
func (s *postgresStage) refreshing(t *testing.T, clients int) (wantsWhole func()) {
	t.Helper()
	head := s.Person(t, s.office.Head)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan func(), clients)
	for range clients {
		tokens := s.connector.Connect(t, head)
		go func() {
			// settled: the last request was answered, so that it is known what its token is worth
			lost, settled := false, true
			for ctx.Err() == nil || !settled {
				answer, err := s.connector.TryPost(t, s.connector.RefreshForm(tokens.RefreshToken))
				settled = err == nil && answer.Status != http.StatusServiceUnavailable
				switch {
				case !settled:
					lost = true
					time.Sleep(50 * time.Millisecond)
				case answer.Status == http.StatusOK:
					tokens = answer.Tokens(t)
				default:
					ended <- func() {
						answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
						if !lost {
							t.Errorf("refused although no answer was lost:\n%s", answer)
						}
						s.connector.WantsDead(t, tokens)
					}
					return
				}
			}
			ended <- func() { s.connector.WantsAlive(t, tokens) }
		}()
	}
	return func() {
		t.Helper()
		stop()
		for range clients {
			(<-ended)()
		}
	}
}

// wantsNormalSoon waits until every process has answered again, each kind of request several times in turn.
func (s *postgresStage) wantsNormalSoon(t *testing.T) {
	t.Helper()
	s.World.Reconnect()
	began, good := time.Now(), 0
	for good < 4 {
		list := s.In(s.office.Workspace, s.office.Token).Get(t, harness.ListPath)
		clients := s.As(s.office.Token).Get(t, s.office.Clients())
		if good++; list.Status != http.StatusOK || clients.Status != http.StatusOK {
			good = 0
			if time.Since(began) > normalWithin {
				t.Fatalf("not normal again within %s:\n%s\n%s", normalWithin, list, clients)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// A slow Postgres makes answers slow, and wrong ones none.
func TestPostgresIsSlow(t *testing.T) {
	besideOthers(t)
	times := harness.Rounds(1, 100)
	harness.Note(t, "Postgres %d times 200 ms slower at every question", times)
	s := newPostgresStage(t)
	for range times {
		d := s.deposit(t)
		s.relay.Slow(200 * time.Millisecond)
		busy := s.refreshing(t, 4)
		d.wantsUnnoticed(t)
		d.honest = d.connector.WantsAlive(t, d.honest)
		s.relay.Slow(0)
		s.wantsNormalSoon(t)
		busy()
		d.wantsCode(t)
		d.wantsKept(t)
	}
}
