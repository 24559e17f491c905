package app

import (
	"net/http"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/programmes"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

// routes are handlers by path and method.
type routes = map[string]map[string]http.Handler

// A module is a part of the API that a workspace may have.
type module struct {
	name   string // as in account.tenant_modules, and the first part of the module's permissions
	routes []routes
}

// parts are the parts that modules use.
type parts struct {
	baseURL    string
	gate       *gate.Gate
	store      *postgres.Store
	cursors    *list.Cursors
	programmes *programme.Cursors
	engage     *engageModule
}

// modules returns the table of the modules. The routes derive from it, and with them the route labels of logs and
// metrics. The tests of permissions, access and the description (O1) read it too.
func modules(p parts) []module {
	return []module{
		{"programmes", []routes{programmes.New(programmes.Deps{
			BaseURL: p.baseURL,
			Gate:    p.gate,
			Store:   p.store,
			Cursors: p.programmes,
		}).Routes()}},
		{"engage", []routes{p.engage.forms.Routes(), p.engage.public.Routes()}},
	}
}
