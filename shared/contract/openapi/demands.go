package openapi

import (
	"slices"
	"strings"
	"sync"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// The members of an operation that say what it demands of a credential: x-permissions lists the permissions, all of
// which it needs, and x-tools those of each tool of the MCP endpoint. Operations without x-permissions take no
// credential of a member. The services' tests compare them with the routes and the tools.
const (
	permissionsMember = "x-permissions"
	toolsMember       = "x-tools"
)

// Permissions returns the permissions that the operation demands, all of them, and whether a member's credential can
// call it.
func (o Operation) Permissions() (perm.Set, bool) {
	return permissionsOf(o.Value(permissionsMember))
}

func permissionsOf(value any) (perm.Set, bool) {
	list, called := value.([]any)
	var names []string
	for _, one := range list {
		name, _ := one.(string)
		names = append(names, name)
	}
	return perm.FromStrings(names), called
}

// Tools returns what each tool of the operation demands.
func (o Operation) Tools() map[string]perm.Set {
	tools := map[string]perm.Set{}
	for _, tool := range o.Map(toolsMember) {
		tools[tool.Name], _ = permissionsOf(tool.Value)
	}
	return tools
}

// demand returns what an operation with these permissions demands, in a workspace that is not yet named.
func (d *Document) demand(o Operation, permissions perm.Set) standing.Demand {
	named := strings.Contains(o.Path, "{tenantId}") || slices.ContainsFunc(d.Parameters(o), func(p Object) bool {
		return p.Text("name") == "X-Tenant-Id"
	})
	forAssistants := o.Path == string(perm.MCP)
	return standing.Demand{
		Anywhere:      !named && !forAssistants,
		Permissions:   permissions,
		ForAssistants: forAssistants,
	}
}

// Demands returns what each operation that a member's credential can call demands of it, by its operationId, and what
// each tool demands, by its name. The demands name no workspace. The caller must not change the map.
var Demands = sync.OnceValues(func() (map[string]standing.Demand, error) {
	document, err := New("https://almoner.invalid") // the demands do not depend on the address
	if err != nil {
		return nil, err
	}
	demands := map[string]standing.Demand{}
	for _, o := range document.operations {
		if permissions, called := o.Permissions(); called {
			demands[o.Text("operationId")] = document.demand(o, permissions)
		}
		for tool, permissions := range o.Tools() {
			demands[tool] = document.demand(o, permissions)
		}
	}
	return demands, nil
})
