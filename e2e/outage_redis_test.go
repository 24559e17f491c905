package e2e

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

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
