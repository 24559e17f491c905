package perm

import "strings"

// A Resource is a protected resource of a deployment: its path below the base address. The two together are the
// resource identifier that an access token is made for (RFC 8707; contract, section 1).
type Resource string

// The resources.
const (
	API Resource = "/v1"
	MCP Resource = "/mcp"
)

// Identifiers returns the resource identifiers of a deployment. The first one is the default of confidential clients.
// baseURL has no trailing slash.
func Identifiers(baseURL string) []string {
	return []string{baseURL + string(API), baseURL + string(MCP)}
}

// ForConnectors is the set that a connector may be granted at the resource: what the operations there can use
// (contract, section 5). The challenge, the metadata of the resource, the consent page and the token of a connector
// name permissions of this set alone.
func (r Resource) ForConnectors() Set { return append(Set(nil), r.set()...) }

// Usable returns what of the set a connector can be granted at the resource with this identifier, nothing where there
// is no such resource. A client or a grant that is older than the sets of the resources can hold more, which has no
// effect.
func (s Set) Usable(identifier string) Set {
	return s.Intersect(resourceOf(identifier).set())
}

// resourceOf returns the path of an identifier. A base address has no path.
func resourceOf(identifier string) Resource {
	_, rest, absolute := strings.Cut(identifier, "://")
	at := strings.IndexByte(rest, '/')
	if !absolute || at < 0 {
		return ""
	}
	return Resource(rest[at:])
}

// set must not be modified.
func (r Resource) set() Set { return usable[r] }

var usable = map[Resource]Set{
	API: choose(func(e Entry) bool { return e.Connector }),
	MCP: choose(func(e Entry) bool { return e.Connector && e.Tool }),
}

func choose(fits func(Entry) bool) Set {
	var out []Permission
	for _, entry := range registry {
		if fits(entry) {
			out = append(out, entry.ID)
		}
	}
	return NewSet(out...)
}
