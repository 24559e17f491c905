package engine

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/identity"
)

// Clients finds stored clients by identifier. The error for an unknown client is client.ErrUnknown.
type Clients interface {
	// Client returns the client without its secrets.
	Client(ctx context.Context, id uuid.UUID) (client.Client, error)
	// ClientWithSecret includes the live secret with this hash.
	ClientWithSecret(ctx context.Context, id uuid.UUID, secretHash []byte) (client.Client, error)
	// RecentClient returns a recently read client with its secrets, for requests that are refused in any case.
	RecentClient(ctx context.Context, id uuid.UUID) (client.Client, error)
}

// Documents returns clients that have metadata documents; *clientmetadata.Resolver implements it. The errors of Client
// are client.ErrNotServed, a *client.DocumentError or client.ErrUnreachable, or wrap store.ErrUnavailable.
type Documents interface {
	Client(ctx context.Context, address string) (client.Client, error)
	// Serves reports whether clients with a document at this address are accepted. It does no I/O.
	Serves(address string) bool
}

// noDocuments is used by a deployment that accepts no such client.
type noDocuments struct{}

func (noDocuments) Serves(string) bool { return false }

func (noDocuments) Client(context.Context, string) (client.Client, error) {
	return client.Client{}, client.ErrNotServed
}

// Serves reports whether a stored client is still accepted. The domain of a client with a document may have been
// removed from the deployment's list.
func (e *Engine) Serves(c client.Client) bool {
	return c.Address == "" || e.Documents.Serves(c.Address)
}

// hasPublicID reports whether c has this client_id. A client with a document is identified only by its URL, never by
// the identifier under which it is stored.
func (e *Engine) hasPublicID(name string, c *client.Client) bool {
	return c != nil && c.PublicID() == name && e.Serves(*c)
}

const unknownApplication = "The application did not identify itself, or is not registered here."

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
	if errors.Is(err, client.ErrUnknown) || (err == nil && (!c.Kind.Traits().Authorizes || !e.hasPublicID(name, &c))) {
		return client.Client{}, &PageError{unknownApplication}
	}
	return c, err
}

// lookUpDocument returns the client whose document is at address.
func (e *Engine) lookUpDocument(ctx context.Context, address string) (client.Client, error) {
	c, err := e.Documents.Client(ctx, address)
	if errors.Is(err, client.ErrNotServed) {
		return client.Client{}, &PageError{
			"The application is not registered here, and its domain is not on the list of allowed domains.",
		}
	}
	if bad, ok := errors.AsType[*client.DocumentError](err); ok {
		return client.Client{}, &PageError{
			"The application's metadata document, at " + address + ", is not valid. " + bad.Message,
		}
	}
	return c, err
}
