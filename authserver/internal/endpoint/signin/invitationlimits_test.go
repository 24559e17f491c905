package signin_test

import (
	"strconv"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

// The 31st answer to one invitation from one network is refused. The invited person elsewhere is not locked out.
func TestInvitation_AnswersAreLimitedByTokenAndNetwork(t *testing.T) {
	e := newTestEnv(t, shared(t))
	path, other := e.invite(address()), e.invite(address())
	thief := e.Browser()
	page := thief.Get(path)
	answer := browsertest.Fields{"name": "Sam Reed", "password": "short"}
	for i := range 30 {
		page.Send("/invitation/account", answer).As(i).Wants(400)
	}
	answer["password"] = password
	refused := page.Send("/invitation/account", answer)
	refused.As("the 31st").Wants(429, "too many attempts to answer this invitation")
	wait, _ := strconv.Atoi(refused.Header.Get("Retry-After"))
	if wait < 1 || refused.Form("/invitation/account").Get("name") != "Sam Reed" {
		t.Errorf("Retry-After %d, or the name is lost", wait)
	}
	page.Send("/invitation", browsertest.Fields{"decision": "decline"}).As("declined").Wants(429)
	thief.Get(other).Send("/invitation", browsertest.Fields{"decision": "decline"}).As("another invitation").Wants(200)
	e.Browser().Get(path).Send("/invitation/account", answer).Wants(303)
}

func TestInvitation_UnknownLinksAreLimitedAndValidOnesWork(t *testing.T) {
	e := newTestEnv(t, shared(t))
	path := e.invite(address())
	browser := e.Browser()
	for i := range 300 {
		browser.Get("/invitation?token=alm_inv_" + strconv.Itoa(i)).As(i).Wants(404)
	}
	browser.Get("/invitation?token=alm_inv_x").As("one more").Wants(429, "Too many invalid links").
		HasHeader("Retry-After")
	browser.Get(path).As("a link that exists").Wants(200, "Join Riverside Food Bank")
}
