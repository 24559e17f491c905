package services

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	gatewayapi "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/almonerhq/almoner/deploy/local/gateway"
)

// goesTo returns the backend of a request for a path: exact matches come first, then the longest prefix of whole
// segments (HTTPRouteRule of the Gateway API's reference).
func goesTo(t *testing.T, route gatewayapi.HTTPRoute, path string) gatewayapi.HTTPBackendRef {
	t.Helper()
	best, backend := -1, gatewayapi.HTTPBackendRef{}
	for _, rule := range route.Spec.Rules {
		for _, match := range rule.Matches {
			value, length := *match.Path.Value, 0
			switch *match.Path.Type {
			case gatewayapi.PathMatchExact:
				length = map[bool]int{true: 1 << 20, false: -1}[path == value]
			case gatewayapi.PathMatchPathPrefix:
				whole := strings.TrimSuffix(value, "/")
				length = map[bool]int{true: len(whole), false: -1}[path == whole || strings.HasPrefix(path, whole+"/")]
			default:
				t.Fatalf("%s uses a match type that gateways need not support", value)
			}
			if length > best {
				best, backend = length, gatewayapi.HTTPBackendRef{}
				switch len(rule.BackendRefs) {
				case 0: // 404
				case 1:
					backend = rule.BackendRefs[0]
				default:
					t.Fatalf("%s has %d backends", value, len(rule.BackendRefs))
				}
			}
		}
	}
	return backend
}

func (c cluster) route(t *testing.T, name string) gatewayapi.HTTPRoute {
	t.Helper()
	return find(t, "HTTPRoute "+name, c.routes, func(route gatewayapi.HTTPRoute) bool { return route.Name == name })
}

func TestRoutes_MatchTheLocalGateway(t *testing.T) {
	t.Parallel()
	c := example(t)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/account", "/v1/account/", "/v1/account/oauth/token", "/v1/accounts",
		"/v1/accountancy/x", "/v1/programmes/programmes", "/v1/docs", "/v1/openapi.json", "/v1/engage/public/embed.js",
		"/mcp", "/mcp/", "/mcp/x", "/authorize", "/authorize/", "/authorized", "/token", "/token/x", "/tokens",
		"/register", "/register/x", "/.well-known/oauth-authorization-server",
		"/.well-known/oauth-authorization-server/v1", "/.well-known/oauth-authorization-server/mcp",
		"/.well-known/openid-configuration", "/.well-known/openid-configuration/v1",
		"/.well-known/openid-configuration/mcp", "/.well-known/oauth-protected-resource",
		"/.well-known/oauth-protected-resource/v1", "/.well-known/oauth-protected-resource/mcp", "/.well-known/",
		"/.well-known/jwks.json", "/.well-known/jwks.json/x", "/mcp/.well-known/oauth-authorization-server",
		"/mcp/.well-known/openid-configuration", "/mcp/.well-known/oauth-protected-resource",
		"/mcp/.well-known/openid-configuration/x", "/login", "/settings/user", "/oauth/authorize",
	} {
		want := map[bool]gatewayapi.ObjectName{true: "authserver", false: "resourceapi"}[gateway.IsAccount(path)]
		if got := goesTo(t, c.route(t, "api"), path).Name; got != want {
			t.Errorf("%s goes to %s instead of %s", path, got, want)
		}
		if got := goesTo(t, c.route(t, "app"), path).Name; got != "authserver" {
			t.Errorf("%s of the app goes to %s", path, got)
		}
	}
}

// claims are the headers in which a caller can claim its address, its route or its trace.
var claims = []string{"Forwarded", "X-Real-IP", "X-Request-Id", "Traceparent", "Tracestate", "Baggage"}

// TestRoutes_HideProbesAndRemoveClaims checks that callers outside cannot reach probes and metrics, and that their
// trace and request IDs are removed.
func TestRoutes_HideProbesAndRemoveClaims(t *testing.T) {
	t.Parallel()
	c := example(t)
	for _, name := range []string{"api", "app"} {
		route := c.route(t, name)
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if got := goesTo(t, route, path).Name; got != "" {
				t.Errorf("%s: %s goes to %s", name, path, got)
			}
		}
		for _, rule := range route.Spec.Rules {
			if len(rule.BackendRefs) == 0 {
				continue
			}
			if len(rule.Filters) != 1 || rule.Filters[0].RequestHeaderModifier == nil {
				t.Errorf("%s: a rule has other filters than the one that removes headers", name)
				continue
			}
			for _, claim := range claims {
				if !slices.Contains(rule.Filters[0].RequestHeaderModifier.Remove, claim) {
					t.Errorf("%s: a rule passes a caller's %s on", name, claim)
				}
			}
		}
	}
}

func TestRoutes_MatchServiceAddresses(t *testing.T) {
	t.Parallel()
	c := example(t)
	settings := c.config(t, "almoner",
		c.deployments[0].Spec.Template.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name).Data
	for name, variable := range map[string]string{"api": "ALMONER_BASE_URL", "app": "ALMONER_APP_URL"} {
		address, err := url.Parse(settings[variable])
		must(t, err)
		route := c.route(t, name)
		if len(route.Spec.Hostnames) != 1 || string(route.Spec.Hostnames[0]) != address.Host ||
			address.Scheme != "https" {
			t.Errorf("HTTPRoute %s is of %q, %s is %s", name, route.Spec.Hostnames, variable, address)
		}
		for _, rule := range route.Spec.Rules {
			for _, to := range rule.BackendRefs {
				found := false
				for _, service := range c.services {
					for _, port := range service.Spec.Ports {
						found = found || service.Name == string(to.Name) && to.Port != nil && *to.Port == port.Port
					}
				}
				if !found {
					t.Errorf("HTTPRoute %s leads to %s, which has no such port", name, to.Name)
				}
			}
		}
	}
	jwks, err := url.Parse(valueOf(c.deployment(t, "resourceapi").template.Spec.Containers[0], "ALMONER_JWKS_URL"))
	if err != nil || jwks.Hostname() != "authserver" || jwks.Port() != "8081" || !gateway.IsAccount(jwks.Path) {
		t.Errorf("ALMONER_JWKS_URL: %v, %v", jwks, err)
	}
}
