package metrics

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
)

// pools reports how the connections to the stores are used, at each scrape.
type pools struct {
	connections, most, waited, waits *prometheus.Desc

	postgres func() *pgxpool.Stat
	redis    func() *goredis.PoolStats
}

// WatchPools registers metrics of the connections to the stores. redis may be nil.
func WatchPools(registry *Registry, postgres func() *pgxpool.Stat, redis func() *goredis.PoolStats) {
	registry.MustRegister(&pools{
		connections: prometheus.NewDesc(
			"almoner_store_connections",
			"Connections to a store, by state.",
			[]string{"store", "state"},
			nil,
		),
		most: prometheus.NewDesc(
			"almoner_postgres_connections_max",
			"Maximum number of connections that this process opens to PostgreSQL.",
			nil,
			nil,
		),
		waited: prometheus.NewDesc(
			"almoner_postgres_connection_wait_seconds_total",
			"Time spent waiting for a connection to PostgreSQL while all were in use.",
			nil,
			nil,
		),
		waits: prometheus.NewDesc(
			"almoner_store_connection_timeouts_total",
			"Waits for a connection to a store that timed out.",
			[]string{"store"},
			nil,
		),
		postgres: postgres,
		redis:    redis,
	})
}

// WatchSearches registers metrics of the PostgreSQL connections reserved for searches.
func WatchSearches(registry *Registry, searches func() *pgxpool.Stat) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "almoner_searches", Help: "Programme searches in progress.",
	}, func() float64 { return float64(searches().AcquiredConns()) }))
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "almoner_searches_max", Help: "Maximum number of concurrent searches in this process.",
	}, func() float64 { return float64(searches().MaxConns()) }))
}

// Describe implements prometheus.Collector.
func (p *pools) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{p.connections, p.most, p.waited, p.waits} {
		to <- one
	}
}

// Collect implements prometheus.Collector.
func (p *pools) Collect(to chan<- prometheus.Metric) {
	gauge := func(what *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...)
	}
	count := func(what *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(what, prometheus.CounterValue, value, labels...)
	}
	now := p.postgres()
	gauge(p.connections, float64(now.AcquiredConns()), postgres, "used")
	gauge(p.connections, float64(now.IdleConns()), postgres, "idle")
	gauge(p.most, float64(now.MaxConns()))
	count(p.waited, now.EmptyAcquireWaitTime().Seconds())
	count(p.waits, float64(now.CanceledAcquireCount()), postgres)
	if p.redis == nil {
		return
	}
	if now := p.redis(); now != nil {
		gauge(p.connections, float64(now.TotalConns-min(now.IdleConns, now.TotalConns)), redis, "used")
		gauge(p.connections, float64(now.IdleConns), redis, "idle")
		count(p.waits, float64(now.Timeouts), redis)
	}
}
