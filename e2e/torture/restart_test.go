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
	work := func(request func() harness.Answer) {
		clients.Go(func() {
			for ctx.Err() == nil {
				if answer := request(); answer.Status >= http.StatusBadRequest {
					t.Errorf("a request failed during a restart:\n%s", answer)
					return
				}
				answered.Add(1)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	wanted := func(answer harness.Answer, err error) harness.Answer {
		if err != nil {
			answer.Status, answer.Body = http.StatusBadGateway, []byte(err.Error())
		}
		return answer
	}
	for range 4 {
		tokens := connector.Connect(t, owner)
		work(func() harness.Answer {
			answer := wanted(connector.TryPost(t, connector.RefreshForm(tokens.RefreshToken)))
			if answer.Status == http.StatusOK {
				tokens = answer.Tokens(t)
			}
			return answer
		})
		work(func() harness.Answer { return wanted(s.As(s.Token).Try(t, http.MethodGet, s.Clients(), "", "")) })
		api := s.In(s.Workspace, s.Token)
		work(func() harness.Answer { return wanted(api.Try(t, http.MethodGet, harness.ListPath, "", "")) })
		work(func() harness.Answer {
			return wanted(api.Try(t, http.MethodPost, harness.ListPath, "application/json", `{"name":"Winter meals"}`))
		})
	}
	inTurn := []*stack.Service{
		running.Authservers[0],
		running.Resources[0],
		running.Authservers[1],
		running.Resources[1],
	}
	for round := range times {
		if err := inTurn[round%len(inTurn)].Restart(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pause)
	}
	await.True(t, "20 requests for each restart are answered", func() bool {
		return answered.Load() >= int64(20*times) || t.Failed()
	})
	stop()
	clients.Wait()
	t.Logf("%d requests answered", answered.Load())
}
