package session

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Methods of a sign-in besides Password.
const (
	Passkey = "passkey"
	OIDC    = "upstream" // an account at the deployment's OpenID Connect provider
)

const maxUserAgent = 300

// Arrival returns a sign-in of user at the request's browser, by a proof that was just checked, and its audit event.
// Both are arguments of Begin.
func Arrival(r *http.Request, user workspace.User, proof Proof, from netip.Addr) (SignIn, audit.Event) {
	by := SignIn{
		UserID:          user.ID,
		Email:           user.Email,
		Method:          proof.Method,
		Proof:           proof,
		Address:         from.String(),
		UserAgent:       userAgent(r),
		AuthenticatedAt: time.Now(),
	}
	return by, audit.Event{
		UserID:    &user.ID,
		Actor:     "user:" + user.ID.String(),
		Action:    audit.SignInSucceeded,
		RequestID: web.RequestID(r.Context()),
		Detail:    map[string]any{"address": by.Address, "user_agent": by.UserAgent, "method": proof.Method},
	}
}

func userAgent(r *http.Request) string {
	agent := []rune(strings.ToValidUTF8(r.UserAgent(), "?"))
	if len(agent) > maxUserAgent {
		agent = agent[:maxUserAgent]
	}
	return string(agent)
}
