// Package wellknown serves the protected resource metadata of RFC 9728.
//
// Clients find it by the challenge of a 401 or by the well-known path, also from web pages, so any origin may read it
// and nothing redirects.
package wellknown

import (
	"net/http"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Path is the prefix of a resource's document (RFC 9728, section 3.1); the path of the resource follows.
const Path = "/.well-known/oauth-protected-resource"

// A Resource is a protected resource. Its display name is the name of the deployment with Suffix.
type Resource struct {
	Path   perm.Resource
	Suffix string
}

// The resources of this service (contract, section 1).
var (
	API = Resource{perm.API, " API"}
	MCP = Resource{perm.MCP, " for assistants"}
)

type document struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	Name                 string   `json:"resource_name"`
}

// Routes returns the handlers of the documents by path and method. brand is the name of the deployment. Some connector
// clients first try the path without a resource or the path below the MCP endpoint.
func Routes(baseURL, brand string) map[string]map[string]http.Handler {
	routes := map[string]map[string]http.Handler{}
	for path, resource := range map[string]Resource{
		Path + string(perm.API): API,
		Path + string(perm.MCP): MCP,
		Path:                    MCP,
		string(perm.MCP) + Path: MCP,
	} {
		routes[path] = map[string]http.Handler{"GET": Document(baseURL, brand, resource), "OPTIONS": Preflight()}
	}
	return routes
}

// Document serves the metadata of one resource. baseURL is the issuer and has no trailing slash. brand is the name of
// the deployment.
func Document(baseURL, brand string, resource Resource) http.Handler {
	content := document{
		Resource:             baseURL + string(resource.Path),
		AuthorizationServers: []string{baseURL},
		BearerMethods:        []string{"header"},
		ScopesSupported:      resource.Path.ForConnectors().Strings(),
		Name:                 brand + resource.Suffix,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		allowEveryOrigin(w.Header())
		web.JSON(w, http.StatusOK, content)
	})
}

// Preflight handles OPTIONS: any origin may send the headers that connector clients add.
func Preflight() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		allowEveryOrigin(w.Header())
		w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
		w.Header().Set("Access-Control-Allow-Headers", "*, Authorization")
		w.Header().Set("Access-Control-Max-Age", "86400") // seconds
		w.WriteHeader(http.StatusNoContent)
	})
}

func allowEveryOrigin(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "WWW-Authenticate")
}
