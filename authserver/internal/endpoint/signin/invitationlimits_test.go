package signin_test

import (
	"strconv"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

// The 31st answer to one invitation from one network is refused. The invited person elsewhere is not locked out.
func TestInvitation_AnswersAreLimitedByTokenAndNetwork(t *testing.T) {
	e := newTestEnv(t)
	path, other := e.invite("sam@example.org"), e.invite("eve@example.org")
	thief := e.Browser()
	thief.Headers.Set("X-Forwarded-For", "192.0.2.1")
	page := thief.Get(path)
	answer := browsertest.Fields{"name": "Sam Reed", "password": "short"}
	for i := range 30 {
		if refused := page.Send("/invitation/account", answer); refused.Status != 400 {
			t.Fatalf("answer %d: %d", i, refused.Status)
		}
	}
	answer["password"] = password
	refused := page.Send("/invitation/account", answer)
	e.wants("the 31st", refused, 429, "too many attempts to answer this invitation")
	wait, _ := strconv.Atoi(refused.Header.Get("Retry-After"))
	if wait < 1 || refused.Form("/invitation/account").Get("name") != "Sam Reed" {
		t.Errorf("Retry-After %d, or the name is lost", wait)
	}
	e.wants("declined", page.Send("/invitation", browsertest.Fields{"decision": "decline"}), 429)
	e.wants("another invitation", thief.Get(other).Send("/invitation",
		browsertest.Fields{"decision": "decline"}), 200)
	home := e.Browser()
	home.Headers.Set("X-Forwarded-For", "192.0.2.2")
	if joined := home.Get(path).Send("/invitation/account", answer); joined.Status != 303 {
		t.Errorf("the invited person elsewhere: %d %s", joined.Status, joined.Text())
	}
}

func TestInvitation_UnknownLinksAreLimitedAndValidOnesWork(t *testing.T) {
	e := newTestEnv(t)
	path := e.invite("sam@example.org")
	browser := e.Browser()
	for i := range 300 {
		if page := browser.Get("/invitation?token=alm_inv_" + strconv.Itoa(i)); page.Status != 404 {
			t.Fatalf("link %d: %d", i, page.Status)
		}
	}
	refused := browser.Get("/invitation?token=alm_inv_x")
	e.wants("one more", refused, 429, "Too many invalid links")
	if refused.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	e.wants("a link that exists", browser.Get(path), 200, "Join Riverside Food Bank")
}
