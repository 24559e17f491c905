package app

import "github.com/almonerhq/almoner/shared/metrics"

// instruments are what the parts are watched with.
type instruments struct {
	registry *metrics.Registry
	http     *metrics.HTTP
	stores   *metrics.Stores
}

func newInstruments() instruments {
	registry := metrics.NewRegistry()
	return instruments{registry: registry, http: metrics.NewHTTP(registry), stores: metrics.NewStores(registry)}
}
