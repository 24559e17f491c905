package gate

import (
	"net/http"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A Resource is a protected resource (contract, section 1).
type Resource struct {
	path   perm.Resource
	suffix string // of its display name, after the name of the deployment
	// forAssistants means that the workspace is the credential's own, since hosted connectors cannot send a header;
	// that LLM integration must be on in the workspace, whatever the credential; and that the tool reports a module
	// that is off (contract, section 7a).
	forAssistants bool
}

// The resources of this service.
var (
	API = Resource{path: perm.API, suffix: " API"}
	MCP = Resource{path: perm.MCP, suffix: " for assistants", forAssistants: true}
)

// metadataPath is the prefix of a resource's metadata document (RFC 9728, section 3.1); the path of the resource
// follows.
const metadataPath = "/.well-known/oauth-protected-resource"

// metadata is the document of a resource (RFC 9728).
type metadata struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	Name                 string   `json:"resource_name"`
}

// MetadataRoutes returns the handlers of the resources' metadata by path and method. baseURL is the issuer and has no
// trailing slash. brand is the name of the deployment.
//
// Clients find the metadata by the challenge of a 401 or by the well-known path, also from web pages, so any origin may
// read it and nothing redirects. Some connector clients first try the path without a resource or the path below the MCP
// endpoint.
func MetadataRoutes(baseURL, brand string) map[string]map[string]http.Handler {
	routes := map[string]map[string]http.Handler{}
	for path, resource := range map[string]Resource{
		metadataPath + string(perm.API): API,
		metadataPath + string(perm.MCP): MCP,
		metadataPath:                    MCP,
		string(perm.MCP) + metadataPath: MCP,
	} {
		document := metadata{
			Resource:             baseURL + string(resource.path),
			AuthorizationServers: []string{baseURL},
			BearerMethods:        []string{"header"},
			ScopesSupported:      resource.path.ForConnectors().Strings(),
			Name:                 brand + resource.suffix,
		}
		routes[path] = map[string]http.Handler{
			"GET": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				allowEveryOrigin(w.Header())
				web.JSON(w, http.StatusOK, document)
			}),
			"OPTIONS": http.HandlerFunc(preflightMetadata),
		}
	}
	return routes
}

// preflightMetadata handles OPTIONS: any origin may send the headers that connector clients add.
func preflightMetadata(w http.ResponseWriter, _ *http.Request) {
	allowEveryOrigin(w.Header())
	w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
	w.Header().Set("Access-Control-Allow-Headers", "*, Authorization")
	w.Header().Set("Access-Control-Max-Age", "86400") // seconds
	w.WriteHeader(http.StatusNoContent)
}

func allowEveryOrigin(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "WWW-Authenticate")
}
