package torture

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A process of a service ends only after the other is back: the gateway skips for 3 s a process that announced its end,
// and between the two restarts a process of the other service restarts, with a pause before and after.
const (
	notice = 2 * time.Second
	pause  = 1500 * time.Millisecond
)

func TestRestarts_FailNoRequest(t *testing.T) {
	onlyLong(t, "restart", "e2e/gateway has a short form, behind Caddy and nginx, of the same name")
	times := harness.Rounds(2, 100)
	harness.Record(t,
		"%d restarts of one of two processes under load, half of them of authserver and half of resourceapi", times)
	running := harness.Private(t,
		harness.Options{Authservers: 2, Resources: 2, Settings: map[string]string{"ALMONER_NOTICE": notice.String()}})
	s := newSite(t, running)
	connector, owner := s.connector, s.owner
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	var answered atomic.Int64
	work := func(request func() (harness.Answer, error)) {
		clients.Go(func() {
			for ctx.Err() == nil {
				if answer, err := request(); err != nil || answer.Status >= http.StatusBadRequest {
					t.Errorf("a request failed during a restart: %v\n%s", err, answer)
					return
				}
				answered.Add(1)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	api := s.In(s.Workspace, s.Token)
	for range 4 {
		tokens := connector.Connect(t, owner)
		work(func() (harness.Answer, error) {
			answer, err := connector.TryPost(t, connector.RefreshForm(tokens.RefreshToken))
			if err == nil && answer.Status == http.StatusOK {
				tokens = answer.Tokens(t)
			}
			return answer, err
		})
		work(func() (harness.Answer, error) { return s.As(s.Token).Try(t, http.MethodGet, s.Clients(), "", "") })
		work(func() (harness.Answer, error) { return api.Try(t, http.MethodGet, harness.ListPath, "", "") })
		work(func() (harness.Answer, error) { return tryWrite(t, api) })
	}
	inTurn := []*stack.Service{
		running.Authservers[0], running.Resources[0], running.Authservers[1], running.Resources[1],
	}
	for round := range times {
		must(t, inTurn[round%len(inTurn)].Restart(context.WithoutCancel(t.Context())))
		time.Sleep(pause)
	}
	await.True(t, "20 requests for each restart are answered", func() bool {
		return answered.Load() >= int64(20*times) || t.Failed()
	})
	stop()
	clients.Wait()
	t.Logf("%d requests answered", answered.Load())
}
