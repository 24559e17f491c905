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

// Contract, section 3 ("A store that does not answer: 503 temporarily_unavailable, Retry-After, and no state half
// changed"), sections 5 and 6, on private stacks whose stores are stopped, paused and erased.

// A scene is the state before an outage: unused codes, valid tokens, an open consent page.
type scene struct {
	ws           harness.TestWorkspace
	owner        *harness.Person
	app          harness.ConfidentialApp
	connector    harness.Connector
	attempt      harness.Attempt
	code         string // of attempt
	appCode      string
	tokens, long harness.Tokens
	page         harness.Page
	pageClient   string
}

func prepare(t *testing.T, p *harness.Product) scene {
	t.Helper()
	ws := p.NewWorkspace(t)
	s := scene{
		ws:        ws,
		owner:     p.Person(t, ws.Owner),
		app:       ws.Confidential(t, "", harness.ReadProgrammes),
		connector: ws.Connector(t, harness.ReadProgrammes),
	}
	s.attempt = s.connector.Begin()
	s.tokens, s.long = s.connector.Connect(t, s.owner), s.app.Connect(t, s.owner)
	other := ws.Connector(t, harness.ReadProgrammes)
	s.page, s.pageClient = s.owner.Consent(t, other.Begin().Query), other.ClientID
	s.code, s.appCode = s.attempt.Code(t, s.owner), s.app.Code(t, s.owner)
	return s
}

// wantsTokensUnavailable checks that the token endpoint returns 503 for valid requests, and never a client error.
func (s scene) wantsTokensUnavailable(t *testing.T) {
	t.Helper()
	wantsUnavailable(t, s.tokenRequests(t)...)
}

func (s scene) tokenRequests(t *testing.T) []func() harness.Answer {
	return []func() harness.Answer{
		func() harness.Answer { return s.connector.Refresh(t, s.tokens.RefreshToken) },
		func() harness.Answer { return s.attempt.Post(t, s.attempt.CodeForm(s.code)) },
		func() harness.Answer { return s.app.Exchange(t, s.app.Body(s.appCode)) },
	}
}

// byGateway is the gateway's message when a service is down, or has not responded for 28 s.
const byGateway = "The service is temporarily unavailable. Try again in a few seconds."

// wantsUnavailable checks the response of routes of authserver while a store does not respond. The requests wait for it
// at the same time.
func wantsUnavailable(t *testing.T, sends ...func() harness.Answer) {
	t.Helper()
	for _, answer := range harness.Concurrently(len(sends), func(i int) harness.Answer { return sends[i]() }) {
		if answer.WantsRetryAfter(t).
			WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable") == byGateway {
			t.Errorf("authserver has not responded:\n%s", answer)
		}
	}
}

// wantsListUnavailable checks the response of resourceapi while Postgres does not respond.
func wantsListUnavailable(t *testing.T, answer harness.Answer) {
	t.Helper()
	if answer.WantsRetryAfter(t).WantsNested(t, http.StatusServiceUnavailable, "UNAVAILABLE") == byGateway {
		t.Errorf("resourceapi has not responded:\n%s", answer)
	}
}

// wantsAPI checks that all three kinds of credentials list programmes.
func (s scene) wantsAPI(t *testing.T, p *harness.Product) {
	t.Helper()
	for _, token := range []string{s.ws.Token, s.tokens.AccessToken, s.long.AccessToken} {
		p.In(s.ws.Workspace, token).Get(t, programmes).Wants(t, http.StatusOK)
	}
}

// wantsEverythingAgain checks that the outage consumed nothing: codes, tokens and the page still work.
func (s scene) wantsEverythingAgain(t *testing.T, p *harness.Product) {
	t.Helper()
	s.wantsAPI(t, p)
	s.connector.WantsWorking(t, s.tokens)
	s.attempt.Post(t, s.attempt.CodeForm(s.code)).Tokens(t)
	s.app.Exchange(t, s.app.Body(s.appCode)).Tokens(t)
	s.page.Approve(t)
	if count := grantsOf(t, p, s.pageClient); count != 1 {
		t.Errorf("%d grants for one approval", count)
	}
	s.connector.WantsWorking(t, s.connector.Connect(t, p.Person(t, s.ws.Owner)))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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

// Redis is stopped, killed, paused, and loses its data, one after the other.
func TestOutage_Redis(t *testing.T) {
	t.Parallel()
	running := harness.Private(t, harness.Options{StopsStores: true})
	p := harness.NewProduct(t, running, &met)
	t.Run("stopped", func(t *testing.T) {
		s := prepare(t, p)
		running.Redis.Stop()
		s.wantsTokensUnavailable(t)
		s.wantsAPI(t, p) // "with Redis down the API is up" (grants)
		p.As(s.ws.Token).Get(t, s.ws.Clients()).Wants(t, http.StatusOK)
		s.page.Press(t, "approve").WantsPage(t, http.StatusServiceUnavailable).WantsRetryAfter(t)
		s.connector.Refresh(t, "alm_rt_nonsense").WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		p.DemoService().Introspect(t, s.tokens.AccessToken).Wants(t, http.StatusOK)
		p.Person(t, s.ws.Owner).SignedIn(t)
		must(t, running.Redis.Restart(t.Context()))
		s.wantsEverythingAgain(t, p)
	})
	t.Run("killed", func(t *testing.T) {
		s := prepare(t, p)
		running.Redis.Kill()
		s.wantsTokensUnavailable(t)
		s.wantsAPI(t, p)
		must(t, running.Redis.Restart(t.Context()))
		s.wantsEverythingAgain(t, p)
	})
	t.Run("revoked meanwhile", func(t *testing.T) {
		s := prepare(t, p)
		running.Redis.Stop()
		s.connector.Revoke(t, s.tokens.RefreshToken).Wants(t, http.StatusOK)
		p.In(s.ws.Workspace, s.tokens.AccessToken).Get(t, programmes).
			WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
		must(t, running.Redis.Restart(t.Context()))
		s.connector.WantsRevoked(t, s.tokens)
	})
	t.Run("frozen", func(t *testing.T) { freezeRedis(t, p, running) })
	t.Run("data lost", func(t *testing.T) { eraseRedis(t, p, running) })
	t.Run("frozen, as in production", func(t *testing.T) { refuseQuickly(t, p, running) }) // changes the settings
}

// freezeRedis pauses Redis. Its connections stay open, so only time limits detect it.
func freezeRedis(t *testing.T, p *harness.Product, running *stack.Stack) {
	s := prepare(t, p)
	must(t, running.Redis.Pause())
	defer running.Redis.Resume()
	s.wantsTokensUnavailable(t)
	s.wantsAPI(t, p)
	s.page.Press(t, "approve").WantsPage(t, http.StatusServiceUnavailable).WantsRetryAfter(t)
	running.Redis.Resume()
	s.wantsEverythingAgain(t, p)
}

// refuseQuickly checks that a service which waits for its stores as in production returns a 503 quickly while Redis is
// paused.
func refuseQuickly(t *testing.T, p *harness.Product, running *stack.Stack) {
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	authserver := running.Authservers[0]
	for name, value := range harness.AsInProduction() { // not before, because a busy store would refuse the sign-in
		authserver.Set(name, value)
	}
	must(t, authserver.Restart(t.Context()))
	must(t, running.Redis.Pause())
	defer running.Redis.Resume()
	wantsQuick503(t, func() harness.Answer { return connector.Refresh(t, tokens.RefreshToken) })
}

// eraseRedis deletes the data of Redis, which Postgres replaces (grants: "When Redis loses its memory").
func eraseRedis(t *testing.T, p *harness.Product, running *stack.Stack) {
	ws := p.NewWorkspace(t)
	owner, connector := p.Person(t, ws.Owner), ws.Connector(t, harness.ReadProgrammes)
	attempt := connector.Begin()
	used := attempt.Code(t, owner)
	ofUsedCode := attempt.Post(t, attempt.CodeForm(used)).Tokens(t)
	honest := connector.Refresh(t, connector.Connect(t, owner).RefreshToken).Tokens(t)
	old := connector.Connect(t, owner)
	replayed := connector.Refresh(t, old.RefreshToken).Tokens(t)
	revoked := connector.Connect(t, owner)
	connector.Revoke(t, revoked.AccessToken).Wants(t, http.StatusOK)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	long := app.Connect(t, owner)

	running.Redis.Kill()
	must(t, running.Redis.Forget())
	must(t, running.Redis.Restart(t.Context()))

	p.In(ws.Workspace, long.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	connector.WantsRevoked(t, revoked)
	connector.Refresh(t, old.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	connector.WantsRevoked(t, replayed)
	attempt.Post(t, attempt.CodeForm(used)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	connector.WantsRevoked(t, ofUsedCode)
	honest = connector.WantsWorking(t, honest)
	connector.WantsWorking(t, honest)
}
