package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// claims are the headers in which a caller may say where it is, how it got here and what it belongs to.
var claims = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server",
	"X_Forwarded_For", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip",
}

// What a caller says about its address counts for nothing, and the address that the connection is from does: the limit of wrong
// passwords is for one account from one address (contract, section 7).
func TestTheServicesSeeWhereCallersAre(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		here, elsewhere := s.product(t, f.oldTransport("127.0.0.31")), s.product(t, f.oldTransport("127.0.0.32"))
		user := here.World.User(t)
		try := func(p *harness.Product, at int) int {
			visitor := p.Person(t, user)
			for _, name := range claims {
				value := fmt.Sprintf("203.0.113.%d", at)
				if name == "Forwarded" {
					value = "for=" + value
				}
				visitor.Header.Set(name, value)
			}
			return visitor.Submit(t, harness.Form{Action: p.AppURL + "/login", Fields: url.Values{"email": {user.Email}, "password": {"wrong"}}}).Status
		}
		for at := range 10 {
			if status := try(here, at); status != http.StatusBadRequest {
				t.Fatalf("wrong password %d: %d", at, status)
			}
		}
		if status := try(here, 100); status != http.StatusTooManyRequests {
			t.Errorf("the 11th wrong password, from one more address that the caller chose: %d", status)
		}
		if status := try(elsewhere, 1); status != http.StatusBadRequest {
			t.Errorf("the first wrong password from another address: %d", status)
		}
	})
}

// The gateway gives each request its id: a caller's own would make two requests look like one in the logs.
func TestCallersDoNotChooseTheirRequestID(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		p := s.product(t, f.transport())
		const chosen = "c0ffee00-0000-4000-8000-000000000000"
		answer := p.API().With("X-Request-Id", chosen).Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK)
		if id := answer.Header.Get("X-Request-Id"); id == chosen || id == "" {
			t.Errorf("the id is %q", id)
		} else {
			s.wantServed(t, map[string]string{id: account})
		}
	})
}
