package engine

import (
	"context"
	"time"

	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

// fositeClient adapts a client.Client to fosite. It exposes no secret: fosite never compares one.
type fositeClient struct{ client.Client }

var _ fosite.Client = fositeClient{}

func (c fositeClient) GetID() string                      { return c.PublicID() }
func (c fositeClient) GetHashedSecret() []byte            { return nil }
func (c fositeClient) GetRedirectURIs() []string          { return c.Redirects }
func (c fositeClient) GetResponseTypes() fosite.Arguments { return fosite.Arguments{"code"} }
func (c fositeClient) GetScopes() fosite.Arguments        { return c.Required.Strings() }
func (c fositeClient) IsPublic() bool                     { return c.Kind.Traits().Public }
func (c fositeClient) GetAudience() fosite.Arguments      { return nil }

func (c fositeClient) GetGrantTypes() fosite.Arguments {
	var names fosite.Arguments
	for _, t := range grantTypes {
		if t.mayUse(c.Kind.Traits()) {
			names = append(names, t.name)
		}
	}
	return names
}

// noStorage is the storage that fosite is given. The client comes from the context, where withClient put it after this
// package's own checks; fosite stores nothing.
type noStorage struct{}

var _ fosite.Storage = noStorage{}

type clientKey struct{}

func withClient(ctx context.Context, c client.Client) context.Context {
	return context.WithValue(ctx, clientKey{}, fositeClient{c})
}

func (noStorage) GetClient(ctx context.Context, id string) (fosite.Client, error) {
	if c, ok := ctx.Value(clientKey{}).(fositeClient); ok && c.GetID() == id {
		return c, nil
	}
	return nil, fosite.ErrNotFound
}

func (noStorage) ClientAssertionJWTValid(context.Context, string) error { return fosite.ErrNotFound }

func (noStorage) SetClientAssertionJWT(context.Context, string, time.Time) error {
	return fosite.ErrNotFound
}
