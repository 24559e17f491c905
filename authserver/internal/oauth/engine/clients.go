package engine

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/identity"
)

// Clients finds clients by the identifier under which they are kept. The error of an unknown one is Unknown of Deps.
type Clients interface {
	// Client has no secrets.
	Client(ctx context.Context, id uuid.UUID) (client.Client, error)
	// ClientWithSecret has the live secret with this hash.
	ClientWithSecret(ctx context.Context, id uuid.UUID, secretHash []byte) (client.Client, error)
	// RecentClient is a client with its secrets as it was a moment ago, for requests that are refused in any case.
	RecentClient(ctx context.Context, id uuid.UUID) (client.Client, error)
}

// Documents know the clients that are known by their metadata documents (package clientdoc). The errors of Client are
// client.ErrNotServed, a *client.DocumentError or client.ErrUnreachable, or wrap store.ErrUnavailable.
type Documents interface {
	Client(ctx context.Context, address string) (client.Client, error)
	// Serves says whether a client with a document at this address is served here at all. It asks nobody.
	Serves(address string) bool
}

// noDocuments are those of a deployment that serves no such client.
type noDocuments struct{}

func (noDocuments) Serves(string) bool { return false }

func (noDocuments) Client(context.Context, string) (client.Client, error) {
	return client.Client{}, client.ErrNotServed
}

// Serves says whether a client that is stored is still served here: the domain of one that has a document may have been
// taken off the deployment's list since.
func (e *Engine) Serves(c client.Client) bool {
	return c.Address == "" || e.Documents.Serves(c.Address)
}

// called says whether c is the client of this name. One that has a document is called by its address alone, never by
// the identifier under which it is kept.
func (e *Engine) called(name string, c *client.Client) bool {
	return c != nil && c.PublicID() == name && e.Serves(*c)
}

const unknownApplication = "The application did not say who it is, or is not registered here."

// lookUpRedirect returns the client of an authorization request. It returns a *PageError, client.ErrUnreachable, or an
// error that wraps store.ErrUnavailable.
func (e *Engine) lookUpRedirect(ctx context.Context, name string) (client.Client, error) {
	if identity.IsAddress(name) {
		return e.lookUpDocument(ctx, name)
	}
	id, err := identity.OfClient(name)
	if err != nil {
		return client.Client{}, &PageError{unknownApplication}
	}
	c, err := e.Clients.Client(ctx, id)
	if errors.Is(err, e.Unknown) || (err == nil && (!c.Kind.Traits().Authorizes || !e.called(name, &c))) {
		return client.Client{}, &PageError{unknownApplication}
	}
	return c, err
}

// lookUpDocument returns the client that describes itself at address.
func (e *Engine) lookUpDocument(ctx context.Context, address string) (client.Client, error) {
	c, err := e.Documents.Client(ctx, address)
	if errors.Is(err, client.ErrNotServed) {
		return client.Client{}, &PageError{
			"The application is not registered here, and its domain is not one of those that this service knows.",
		}
	}
	if bad, ok := errors.AsType[*client.DocumentError](err); ok {
		return client.Client{}, &PageError{
			"The application's description of itself, at " + address + ", cannot be used. " + bad.Message,
		}
	}
	return c, err
}
