package engine

import (
	"context"
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/client"
	"github.com/almonerhq/almoner/authserver/internal/consent"
)

// An Application is the part of an authorization request that is checked first: who asks, and where the answer goes. Until
// both are known, nothing is redirected (RFC 6749, section 4.1.2.1).
type Application struct {
	Client      client.Client
	RedirectURI string
	query       url.Values
}

// A PageError is a fault of the authorization request that must not be redirected: it is shown to the user, with status 400.
type PageError struct{ Message string }

func (e *PageError) Error() string { return e.Message }

// A RedirectError is a fault that is redirected to the callback (RFC 6749, section 4.1.2.1), with State when it can be.
type RedirectError struct {
	Code        string
	Description string
	State       string // "" when it was missing or too long
}

func (e *RedirectError) Error() string { return e.Code + ": " + e.Description }

// Identify finds the client of an authorization request and checks its redirect URI, byte by byte, and that no parameter
// stands twice. It returns a *PageError, or an error that wraps grant.ErrUnavailable.
func (e *Engine) Identify(ctx context.Context, rawQuery string) (Application, error) {
	panic("being written")
}

// Ask checks the rest of the request. It returns a *RedirectError where it is refused.
func (e *Engine) Ask(ctx context.Context, app Application) (consent.Ask, error) {
	panic("being written")
}

// An Engine is safe for concurrent use.
type Engine struct{}
