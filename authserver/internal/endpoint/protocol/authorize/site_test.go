package authorize_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

// shared returns a workspace of the package's service for a test that runs beside the others.
func shared(t *testing.T) *browsertest.Server {
	t.Helper()
	t.Parallel()
	return browsertest.Shared(t)
}

// own starts a service for a test that moves the clock, stops a store, or changes the schema or the configuration.
func own(t *testing.T, changes ...apitest.Change) *browsertest.Server {
	t.Helper()
	t.Parallel()
	return browsertest.Own(t, changes...)
}
