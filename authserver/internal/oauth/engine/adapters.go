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

func (f fositeClient) GetID() string                      { return f.PublicID() }
func (f fositeClient) GetHashedSecret() []byte            { return nil }
func (f fositeClient) GetRedirectURIs() []string          { return f.Redirects }
func (f fositeClient) GetResponseTypes() fosite.Arguments { return fosite.Arguments{"code"} }
func (f fositeClient) GetScopes() fosite.Arguments        { return f.Required.Strings() }
func (f fositeClient) IsPublic() bool                     { return f.Kind.Traits().Public }
func (f fositeClient) GetAudience() fosite.Arguments      { return nil }

func (f fositeClient) GetGrantTypes() fosite.Arguments {
	var names fosite.Arguments
	for _, t := range grantTypes {
		if t.mayUse(f.Kind.Traits()) {
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
