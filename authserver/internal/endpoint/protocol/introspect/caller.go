package introspect

import (
	"mime"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/token"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A caller is a service with the credentials that it sent. They are unverified until authenticated has compared the
// secret.
type caller struct {
	name   string // as sent
	id     uuid.UUID
	secret credential.Secret
}

// readCaller reads the caller's credentials from the Authorization header if there is one, and otherwise from the form
// (RFC 6749, section 2.3.1). unread is the error of reading the body, if any. A secret that cannot have been issued is
// refused without a query to Postgres. The caller's name is set together with every error that concerns that caller.
func readCaller(r *http.Request, p token.Parameters, unread error) (caller, error) {
	var c caller
	if len(r.Header.Values("Authorization")) > 0 {
		var ok bool
		if c.name, c.secret, ok = token.BasicCredentials(r); !ok {
			return c, unauthenticated()
		}
		if _, twice := p.Values["client_secret"]; twice {
			return c, errTwoWays()
		}
		if name, named := p.Values["client_id"]; named && name != c.name {
			return c, errTwoWays()
		}
	} else {
		switch {
		case !isForm(r) || p.JSON: // such a body has no caller
			return c, unauthenticated()
		case unread != nil:
			return c, unread
		}
		c.name, c.secret = p.Values["client_id"], credential.Secret(p.Values["client_secret"])
	}
	var err error
	if c.id, err = identity.ParseExact(c.name); err != nil || !credential.ClientSecret.Matches(c.secret.Reveal()) {
		return c, unauthenticated()
	}
	return c, nil
}

func isForm(r *http.Request) bool {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && mediaType == "application/x-www-form-urlencoded"
}

func errTwoWays() error {
	return apierr.New(apierr.Invalid,
		"Use only one authentication method: Authorization: Basic, or client_id and client_secret in the form.")
}

// unauthenticated does not tell the cause: an unknown client, another kind of client and a wrong secret give the same
// response.
func unauthenticated() error {
	return &engine.TokenError{
		Code: "invalid_client",
		Description: "This endpoint is for services. Authenticate with the client id and secret of a service, by " +
			"HTTP Basic or as client_id and client_secret in the form.",
		Challenge: true,
	}
}

// authenticated returns nil if c is a service and secret is its secret.
func authenticated(c *client.Client, secret credential.Secret) error {
	if c == nil || c.Kind != client.Service || !c.SecretMatches(secret) {
		return unauthenticated()
	}
	return nil
}
