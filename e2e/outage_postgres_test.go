package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Postgres is stopped, killed and paused, and the services are killed, one after the other.
func TestOutage_Postgres(t *testing.T) {
	t.Parallel()
	running := harness.Private(t, harness.Options{StopsStores: true})
	p := harness.NewProduct(t, running, &met)
	for how, stop := range map[string]func(){"stopped": running.Postgres.Stop, "killed": running.Postgres.Kill} {
		t.Run(how, func(t *testing.T) {
			s, wants503 := prepare(t, p), readyForOutage(t, p)
			stop()
			s.wantsEverythingUnavailable(t, p)
			wants503(t)
			must(t, running.Postgres.Restart(t.Context()))
			waitForReady(t, p, running)
			s.wantsEverythingAgain(t, p)
		})
	}
	t.Run("frozen", func(t *testing.T) {
		s := prepare(t, p)
		must(t, running.Postgres.Pause())
		defer running.Postgres.Resume()
		wantsListUnavailable(t, p.In(s.ws.Workspace, s.ws.Token).Get(t, programmes))
		s.wantsTokensUnavailable(t)
		wantsQuick503(t, func() harness.Answer { return p.In(s.ws.Workspace, s.ws.Token).Get(t, programmes) })
		wantsQuick503(t, func() harness.Answer { return s.connector.Refresh(t, s.tokens.RefreshToken) })
		running.Postgres.Resume()
		waitForReady(t, p, running)
		s.wantsAPI(t, p)
		s.connector.Connect(t, p.Person(t, s.ws.Owner))
	})
	t.Run("a service killed", func(t *testing.T) { killServices(t, p, running) })
}

// wantsQuick503 checks that the time to a 503 is less than 300 ms while the store is known to be silent.
func wantsQuick503(t *testing.T, send func() harness.Answer) {
	t.Helper()
	testkit.Quick(t, 300*time.Millisecond, func() { send().Wants(t, http.StatusServiceUnavailable) })
}

// wantsEverythingUnavailable checks the 503 of each route, and the usual response of requests that need no store.
func (s scene) wantsEverythingUnavailable(t *testing.T, p *harness.Product) {
	t.Helper()
	s.wantsTokensUnavailable(t)
	tokens := []string{s.ws.Token, s.tokens.AccessToken, s.long.AccessToken}
	for _, answer := range harness.Concurrently(len(tokens), func(i int) harness.Answer {
		return p.In(s.ws.Workspace, tokens[i]).Get(t, programmes)
	}) {
		wantsListUnavailable(t, answer)
	}
	wantsUnavailable(t,
		func() harness.Answer { return p.As(s.ws.Token).Get(t, s.ws.Clients()) },
		func() harness.Answer { return s.ws.Register(t, harness.ConfidentialBody(harness.ReadProgrammes)) },
		func() harness.Answer { return s.connector.Revoke(t, s.tokens.RefreshToken) },
		func() harness.Answer { return p.DemoService().Introspect(t, s.tokens.AccessToken) })
	s.page.Press(t, "approve").WantsPage(t, http.StatusServiceUnavailable).WantsRetryAfter(t)
	s.owner.Open(t, p.AuthorizeURL(s.app.Request())).WantsPage(t, http.StatusServiceUnavailable).WantsRetryAfter(t)

	p.In(s.ws.Workspace, "nonsense").Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	wantsGateway(t, p.API().Get(t, s.ws.Clients()), http.StatusUnauthorized, "Unauthorized")
	p.API().Get(t, "/v1/nothing").WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	p.API().Get(t, harness.TokenPath).Wants(t, http.StatusMethodNotAllowed)
	p.API().Get(t, "/.well-known/oauth-authorization-server").Wants(t, http.StatusOK)
	p.API().Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK)
}

// waitForReady waits until both services are connected to their stores again.
func waitForReady(t *testing.T, p *harness.Product, running *stack.Stack) {
	t.Helper()
	p.Database.Reconnect()
	for _, url := range []string{running.AppURL + "/readyz", running.ResourceURL + "/readyz"} {
		await.True(t, url+" is ready", func() bool {
			response, err := http.Get(url)
			if err != nil {
				return false
			}
			_ = response.Body.Close()
			return response.StatusCode == http.StatusOK
		})
	}
}

// killServices kills one service while the other runs, and restarts it.
func killServices(t *testing.T, p *harness.Product, running *stack.Stack) {
	s := prepare(t, p)
	running.Authservers[0].Kill()
	s.wantsAPI(t, p) // the API verifies tokens without the authorization server
	for _, send := range s.tokenRequests(t) {
		answer := send().WantsRetryAfter(t)
		if answer.WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable") != byGateway {
			t.Errorf("not the message of the gateway:\n%s", answer)
		}
	}
	must(t, running.Authservers[0].Restart(t.Context()))
	s.wantsEverythingAgain(t, p) // sessions, codes, keys and the open page survive

	running.Resourceapi.Kill()
	answer := p.In(s.ws.Workspace, s.ws.Token).Get(t, programmes).WantsRetryAfter(t)
	if answer.WantsNested(t, http.StatusServiceUnavailable, "UNAVAILABLE") != byGateway {
		t.Errorf("not the message of the gateway:\n%s", answer)
	}
	s.connector.Connect(t, s.owner)
	must(t, running.Resourceapi.Restart(t.Context()))
	s.wantsAPI(t, p)
}
