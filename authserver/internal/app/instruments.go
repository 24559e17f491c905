package app

import (
	"github.com/almonerhq/almoner/authserver/internal/measure"
	"github.com/almonerhq/almoner/shared/metrics"
)

// instruments are what the parts are watched with.
type instruments struct {
	registry *metrics.Registry
	http     *metrics.HTTP
	stores   *metrics.Stores
	grants   *measure.Metrics
}

func newInstruments() instruments {
	registry := metrics.NewRegistry()
	return instruments{registry: registry, http: metrics.NewHTTP(registry), stores: metrics.NewStores(registry), grants: measure.New(registry)}
}
