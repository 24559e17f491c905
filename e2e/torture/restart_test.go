package torture

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// noticed is more than the gateway leaves out a process that said it was leaving.
const noticed = 3500 * time.Millisecond

// One of two processes of authserver is told to end, and started again, while clients work: none of their requests fails.
func TestRestartsFailNoRequest(t *testing.T) {
	times := rounds(3, 50)
	note(t, "%d restarts of one of two processes of authserver under load", times)
	running := harness.Private(t, harness.Options{Authservers: 2, Settings: map[string]string{"ALMONER_NOTICE": "1s"}})
	p := harness.Enter(t, running, &met)
	office := p.Office(t)
	connector, head := office.Connector(t, harness.ReadProgrammes), p.Person(t, office.Head)
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
		tokens := connector.Connect(t, head)
		work(func() harness.Answer {
			answer := wanted(connector.TryPost(t, connector.RefreshForm(tokens.RefreshToken)))
			if answer.Status == http.StatusOK {
				tokens = answer.Tokens(t)
			}
			return answer
		})
		work(func() harness.Answer {
			return wanted(p.As(office.Token).Try(t, http.MethodGet, office.Clients(), "", ""))
		})
	}
	for round := range times {
		if err := running.Authservers[round%2].Restart(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(noticed)
	}
	stop()
	clients.Wait()
	t.Logf("%d requests answered", answered.Load())
	if least := int64(20 * times); answered.Load() < least {
		t.Errorf("%d requests answered during %d restarts, want %d at least", answered.Load(), times, least)
	}
}
