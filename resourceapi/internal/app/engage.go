package app

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/forms"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/publicforms"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
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
	c Config,
	keys seal.Keys,
	guard *gate.Gate,
	store *postgres.Store,
	log *slog.Logger,
) (*engageModule, error) {
	tokens, err := engage.NewTokens(keys)
	if err != nil {
		return nil, err
	}
	cursors, err := engage.NewCursors(keys)
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
	processor, err := worker.New(store.JobDriver(), postgres.JobSchema, engageStore, log)
	if err != nil {
		return nil, err
	}
	limits, err := redis.Connect(c.RedisURL, log, time.Now)
	if err != nil {
		return nil, err
	}
	return &engageModule{
		forms: forms.New(forms.Deps{BaseURL: c.BaseURL, Gate: guard, Store: engageStore, Cursors: cursors}),
		public: publicforms.New(publicforms.Deps{
			BaseURL: c.BaseURL,
			Store:   engageStore,
			Tokens:  tokens,
			Now:     time.Now,
			Address: proxies.ClientAddress,
			Count:   limits.Count,
			Refuse:  guard.Refuse,
			Note:    guard.Note,
		}),
		worker: processor,
		limits: limits,
	}, nil
}

// route adds the paths of the module.
func (m *engageModule) route(handle func(path string, methods map[string]http.Handler)) {
	handle(forms.Path, map[string]http.Handler{"GET": m.forms.List(), "POST": m.forms.Create()})
	handle(forms.Path+"/{id}", map[string]http.Handler{"GET": m.forms.Read(), "PATCH": m.forms.Change()})
	handle(forms.Path+"/{id}/submissions", map[string]http.Handler{"GET": m.forms.Submissions()})

	form := publicforms.FormsPath + "/{embedKey}"
	handle(form, map[string]http.Handler{"GET": m.public.Definition(), "OPTIONS": m.public.Preflight()})
	handle(form+"/submissions", map[string]http.Handler{"POST": m.public.Submit(), "OPTIONS": m.public.Preflight()})
	handle(form+"/embed", map[string]http.Handler{"GET": m.public.Page(), "POST": m.public.Send()})
	handle(publicforms.SubmissionsPath+"/{id}", map[string]http.Handler{"GET": m.public.Status()})
	handle(publicforms.Root+"/embed.js", map[string]http.Handler{"GET": m.public.Script()})
	handle(publicforms.Root+"/embed.css", map[string]http.Handler{"GET": m.public.Style()})
	handle(publicforms.Root+"/height.js", map[string]http.Handler{"GET": m.public.Height()})
}
