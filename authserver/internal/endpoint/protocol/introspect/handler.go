package introspect

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/token"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A Store reads, in one query, the calling client with the live secret that has this hash, the standing of the
// credential in the query, and the creation time of a personal access token. What does not exist is nil. Its errors
// wrap store.ErrUnavailable.
type Store interface {
	Introspection(
		ctx context.Context,
		caller uuid.UUID,
		secretHash []byte,
		q standing.Query,
	) (*client.Client, *standing.Standing, time.Time, error)
	// EndReplaced ends the tokens that a personal access token replaces.
	EndReplaced(ctx context.Context, token uuid.UUID) error
	// ClientWithSecret returns a registered client with its live secret of this hash. Its errors are Unknown of Deps,
	// or wrap store.ErrUnavailable.
	ClientWithSecret(ctx context.Context, id uuid.UUID, secretHash []byte) (client.Client, error)
}

// Uses records that a credential was used, outside the request path.
type Uses interface {
	Record(s standing.Standing)
}

// Deps are the dependencies of the endpoint.
type Deps struct {
	Issuer   string
	Resource string // {base_url}/v1, the resource of personal access tokens
	Store    Store
	Keys     func() *accesstoken.Keys
	Uses     Uses
	Failures token.Failures
	Now      func() time.Time
	Log      *slog.Logger
}

// New returns a handler for POST; the router refuses other methods.
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

// serve tells an unauthenticated caller nothing about the token. It checks the token's text before the query, so that
// one query reads both the caller and the token.
func (d Deps) serve(w http.ResponseWriter, r *http.Request) (answer, error) {
	parameters, mistake := token.Decode(w, r)
	from, err := readCaller(r, parameters, mistake)
	if err != nil {
		return answer{}, d.refused(from, err)
	}
	var p presented
	if mistake == nil {
		p, mistake = d.readToken(r, parameters)
	}
	if mistake != nil || !p.counts {
		c, err := d.Store.ClientWithSecret(r.Context(), from.id, client.SecretHash(from.secret))
		if errors.Is(err, client.ErrUnknown) {
			return answer{}, d.refused(from, unauthenticated())
		}
		if err != nil {
			return answer{}, err
		}
		if err := authenticated(&c, from.secret); err != nil {
			return answer{}, d.refused(from, err)
		}
		return answer{}, mistake
	}
	c, s, issued, err := d.Store.Introspection(r.Context(), from.id, client.SecretHash(from.secret), p.query)
	if err != nil {
		return answer{}, err
	}
	if err := authenticated(c, from.secret); err != nil {
		return answer{}, d.refused(from, err)
	}
	web.RecordCaller(r.Context(), web.Caller{Client: c.ID})
	out := d.respond(p, s, issued)
	if out.Active && s.Replaces {
		if err := d.Store.EndReplaced(r.Context(), s.CredentialID); err != nil {
			return answer{}, err
		}
	}
	return out, nil
}

// refused counts a failed authentication for the name that the caller sent.
func (d Deps) refused(from caller, err error) error {
	return token.LimitedClient(d.Failures, from.name, err)
}
