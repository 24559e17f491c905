package token

import (
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
)

// Caller reads who says to have sent a request, for the endpoints where a client names itself as it does here
// (endpoint/revoke): Engine.Authenticate judges it.
func Caller(r *http.Request, p Parameters) engine.TokenRequest { return request(r, p) }
