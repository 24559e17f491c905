package metrics

import (
	"github.com/IBM/pgxpoolprometheus"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/extra/redisprometheus/v9"
	goredis "github.com/redis/go-redis/v9"
)

// WatchPostgres registers the metrics pgxpool_… of a pool. Their label pool is its name.
func WatchPostgres(registry *Registry, name string, stat func() *pgxpool.Stat) {
	registry.MustRegister(pgxpoolprometheus.NewCollector(postgresPool(stat), map[string]string{"pool": name}))
}

// WatchRedis registers the metrics redis_pool_….
func WatchRedis(registry *Registry, stats func() *goredis.PoolStats) {
	registry.MustRegister(redisprometheus.NewCollector("redis", "", redisPool(stats)))
}

type postgresPool func() *pgxpool.Stat

func (p postgresPool) Stat() *pgxpool.Stat { return p() }

type redisPool func() *goredis.PoolStats

func (p redisPool) PoolStats() *goredis.PoolStats { return p() }
