package perm

import "strings"

// A Resource is a protected resource of a deployment: its path below the base address. Both together are the
// resource identifier of an access token (RFC 8707; contract, section 1).
type Resource string

// The resources.
const (
	API Resource = "/v1"
	MCP Resource = "/mcp"
)

// Identifiers returns the resource identifiers of a deployment. The first is the default of confidential
// clients. baseURL must have no trailing slash.
func Identifiers(baseURL string) []string {
	return []string{baseURL + string(API), baseURL + string(MCP)}
}

// ForConnectors returns the set that a connector may be granted at the resource: what its operations can use
// (contract, section 5). The challenge, the metadata of the resource, the consent page and the tokens of
// connectors contain only permissions of this set.
func (r Resource) ForConnectors() Set { return append(Set(nil), r.set()...) }

// Usable returns the permissions of the set that a connector can be granted at the resource with this
// identifier, or none if there is no such resource. Older clients and grants may have more, which has no
// effect.
func (s Set) Usable(identifier string) Set {
	return s.Intersect(resourceOf(identifier).set())
}

// resourceOf returns the path of an identifier, or "" for a base address.
func resourceOf(identifier string) Resource {
	_, rest, absolute := strings.Cut(identifier, "://")
	at := strings.IndexByte(rest, '/')
	if !absolute || at < 0 {
		return ""
	}
	return Resource(rest[at:])
}

// set returns the shared set of the resource. It must not be modified.
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
