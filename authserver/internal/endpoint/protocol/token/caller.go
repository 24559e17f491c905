package token

import (
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
)

// Caller returns the credentials in a request, for other endpoints where a client authenticates as it does here
// (endpoint/protocol/revoke). Engine.Authenticate verifies them.
func Caller(r *http.Request, p Parameters) engine.TokenRequest { return request(r, p) }
