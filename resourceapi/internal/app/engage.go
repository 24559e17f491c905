package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/almonerhq/almoner/shared/brand"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/secretfile"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/forms"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/publicforms"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/redis"
	"github.com/almonerhq/almoner/resourceapi/internal/worker"
)

// engageModule is the parts of the Engage module.
type engageModule struct {
	forms  *forms.Endpoint
	public *publicforms.Endpoint
	worker interface{ Run(context.Context) }
	limits *redis.Limits
}

func newEngage(
	c Config, shown brand.Brand, keys seal.Keys, cursors *list.Cursors, guard *gate.Gate, store *postgres.Store,
	webhooks worker.Webhooks, log *slog.Logger,
) (*engageModule, error) {
	tokens, err := engage.NewTokens(keys)
	if err != nil {
		return nil, err
	}
	proxies, err := web.ParseProxies(c.Proxies)
	if err != nil {
		return nil, err
	}
	queue, err := worker.NewQueue(store.JobDriver(), postgres.JobSchema)
	if err != nil {
		return nil, err
	}
	engageStore := store.Engage(queue)
	processor, err := worker.New(store.JobDriver(), worker.Deps{
		Schema:      postgres.JobSchema,
		Submissions: engageStore,
		Webhooks:    webhooks,
		Events:      store,
		Log:         log,
	})
	if err != nil {
		return nil, err
	}
	redisURL := secretfile.Redis("ALMONER_REDIS_URL", c.files.redis, c.RedisURL, log)
	limits, err := redis.ConnectFromSource(redisURL, c.StoreWait, log, time.Now)
	if err != nil {
		return nil, err
	}
	return &engageModule{
		forms: forms.New(forms.Deps{BaseURL: c.BaseURL, Gate: guard, Store: engageStore, Cursors: cursors}),
		public: publicforms.New(publicforms.Deps{
			BaseURL:        c.BaseURL,
			Brand:          shown,
			Store:          engageStore,
			Tokens:         tokens,
			Now:            time.Now,
			Address:        proxies.ClientAddress,
			Count:          limits.Count,
			Refuse:         guard.Refuse,
			LogServerError: guard.LogServerError,
		}),
		worker: processor,
		limits: limits,
	}, nil
}
