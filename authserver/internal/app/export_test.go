package app

import (
	"context"
	"net/http"
)

// Handler is what answers every request, for tests that need no connection. Its signing keys are read.
func (a *App) Handler(ctx context.Context) (http.Handler, error) { return a.handler, a.ring.Load(ctx) }
