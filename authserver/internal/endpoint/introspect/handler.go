package introspect

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/lestrrat-go/jwx/v2/jwk"

	"github.com/almonerhq/almoner/authserver/internal/client"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/token"
	"github.com/almonerhq/almoner/authserver/internal/engine"
	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/standing"
	"github.com/almonerhq/almoner/shared/web"
)

// Clients finds registered clients. Its errors are Unknown of Deps, or wrap grant.ErrUnavailable.
type Clients interface {
	Client(ctx context.Context, id uuid.UUID) (client.Client, error)
}

// Standings reads the standing of a credential, and when a personal access token was made. Its errors are
// standing.ErrUnknown, or wrap grant.ErrUnavailable.
type Standings interface {
	StandingAndIssue(ctx context.Context, q standing.Question) (standing.Standing, time.Time, error)
}

// Uses notes that a credential was used, off the request's path.
type Uses interface {
	Note(s standing.Standing)
}

// Deps are what the endpoint works with.
type Deps struct {
	Issuer    string
	Resource  string // {base_url}/v1, that of personal access tokens
	Clients   Clients
	Unknown   error // the error by which Clients says that there is no such client
	Keys      func() jwk.Set
	Standings Standings
	Uses      Uses
	Failures  token.Failures
	Now       func() time.Time
	Log       *slog.Logger
}

// New serves POST; other methods are refused by the route.
func New(d Deps) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := d.serve(w, r)
		if err != nil {
			token.Refuse(w, r, err, d.Log)
			return
		}
		web.JSON(w, http.StatusOK, answer)
	})
}

func (d Deps) serve(w http.ResponseWriter, r *http.Request) (answer, error) {
	if err := d.authenticate(r); err != nil {
		return answer{}, err
	}
	parameters, err := token.Decode(w, r)
	if err != nil {
		return answer{}, err
	}
	if parameters.JSON {
		return answer{}, apierr.New(apierr.Invalid, "Content-Type must be application/x-www-form-urlencoded.")
	}
	text := parameters.Values["token"]
	if text == "" {
		return answer{}, apierr.New(apierr.Invalid, "token is required.")
	}
	return d.judge(r.Context(), text)
}

// authenticate lets a service in that says who it is by HTTP Basic. A user's token is no answer to that question, and why
// another was not let in is not said.
func (d Deps) authenticate(r *http.Request) error {
	refused := &engine.TokenError{
		Code: "invalid_client", Description: "This endpoint is for services, with their client id and secret by HTTP Basic.", Challenge: true,
	}
	name, secret, ok := token.BasicCredentials(r)
	id, err := identity.ParseExact(name)
	if !ok || err != nil {
		return token.LimitedClient(r.Context(), d.Failures, name, refused)
	}
	c, err := d.Clients.Client(r.Context(), id)
	if err != nil && !errors.Is(err, d.Unknown) {
		return err
	}
	if err != nil || c.Kind != client.Service || !c.SecretMatches(secret) {
		return token.LimitedClient(r.Context(), d.Failures, name, refused)
	}
	return nil
}
