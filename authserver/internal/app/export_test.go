package app

import (
	"context"
	"net/http"
)

// Handler returns the handler of every request, for tests without a listener. It loads the signing keys.
func (a *App) Handler(ctx context.Context) (http.Handler, error) { return a.handler, a.ring.Load(ctx) }
