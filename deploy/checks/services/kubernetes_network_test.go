package services

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayapi "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/almonerhq/almoner/deploy/local/gateway"
)

// A peer is one end of a connection: a pod with its labels and namespace, or an address.
type peer struct {
	namespace, name string
	labels          map[string]string
	template        core.PodTemplateSpec // of our own pods
	address         string
}

// ours returns the pods of a workload.
func (c cluster) ours(t *testing.T, name string) peer {
	t.Helper()
	w := find(t, "workload "+name, c.workloads(), func(w workload) bool { return w.name == name })
	return peer{namespace: "almoner", name: name, labels: w.template.Labels, template: w.template}
}

func matches(t *testing.T, selector *meta.LabelSelector, of map[string]string) bool {
	t.Helper()
	chosen, err := meta.LabelSelectorAsSelector(selector)
	must(t, err)
	return chosen.Matches(labels.Set(of))
}

// isPeer reports whether a policy's peer matches (NetworkPolicyPeer of the API's reference).
func isPeer(t *testing.T, meant networking.NetworkPolicyPeer, policy string, end peer) bool {
	t.Helper()
	if meant.IPBlock != nil {
		address, err := netip.ParseAddr(end.address)
		if err != nil {
			return false
		}
		inside := func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(address) }
		return inside(meant.IPBlock.CIDR) && !slices.ContainsFunc(meant.IPBlock.Except, inside)
	}
	if end.address != "" {
		return false
	}
	if meant.NamespaceSelector == nil {
		if end.namespace != policy {
			return false
		}
	} else if !matches(t, meant.NamespaceSelector, map[string]string{"kubernetes.io/metadata.name": end.namespace}) {
		return false
	}
	return meant.PodSelector == nil || matches(t, meant.PodSelector, end.labels)
}

// isPort reports whether a rule has the port. A port name refers to the pods that the connection goes to.
func isPort(ports []networking.NetworkPolicyPort, to peer, protocol core.Protocol, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networking.NetworkPolicyPort) bool {
		number := p.Port.IntVal
		if p.Port.StrVal != "" {
			number = portOf(to.template, p.Port.StrVal)
		}
		return *p.Protocol == protocol && number == port
	})
}

// allows reports whether a connection may be opened: a pod that a policy selects accepts and opens only the connections
// that a policy allows.
func (c cluster) allows(t *testing.T, from, to peer, protocol core.Protocol, port int32) bool {
	t.Helper()
	out, in := len(from.template.Labels) == 0, len(to.template.Labels) == 0 // not our pods
	for _, policy := range c.policies {
		meets := func(ports []networking.NetworkPolicyPort, peers []networking.NetworkPolicyPeer, end peer) bool {
			return isPort(ports, to, protocol, port) && slices.ContainsFunc(peers,
				func(p networking.NetworkPolicyPeer) bool { return isPeer(t, p, policy.Namespace, end) })
		}
		if from.template.Labels != nil && matches(t, &policy.Spec.PodSelector, from.labels) {
			for _, rule := range policy.Spec.Egress {
				out = out || meets(rule.Ports, rule.To, to)
			}
		}
		if to.template.Labels != nil && matches(t, &policy.Spec.PodSelector, to.labels) {
			for _, rule := range policy.Spec.Ingress {
				in = in || meets(rule.Ports, rule.From, from)
			}
		}
	}
	return out && in
}

func TestNetworkPolicies_DenyByDefault(t *testing.T) {
	t.Parallel()
	c := example(t)
	for _, w := range c.workloads() {
		shut := slices.ContainsFunc(c.policies, func(p networking.NetworkPolicy) bool {
			return matches(t, &p.Spec.PodSelector, w.template.Labels) && len(p.Spec.Ingress) == 0 &&
				len(p.Spec.Egress) == 0 && slices.Contains(p.Spec.PolicyTypes, networking.PolicyTypeIngress) &&
				slices.Contains(p.Spec.PolicyTypes, networking.PolicyTypeEgress)
		})
		if !shut {
			t.Errorf("%s: no policy denies by default", w.name)
		}
	}
	for _, p := range c.policies {
		if len(c.selected(t, &p.Spec.PodSelector)) == 0 {
			t.Errorf("NetworkPolicy %s selects nothing", p.Name)
		}
		ingress := slices.Contains(p.Spec.PolicyTypes, networking.PolicyTypeIngress)
		egress := slices.Contains(p.Spec.PolicyTypes, networking.PolicyTypeEgress)
		if len(p.Spec.Ingress) > 0 && !ingress || len(p.Spec.Egress) > 0 && !egress {
			t.Errorf("NetworkPolicy %s: a rule is not covered by policyTypes", p.Name)
		}
	}
}

func TestNetworkPolicies_AllowOnlyListedConnections(t *testing.T) {
	t.Parallel()
	base, c := render(t, "base"), example(t)
	for i := range base.policies {
		base.policies[i].Namespace = "almoner"
	}
	authserver, resourceapi := c.ours(t, "authserver"), c.ours(t, "resourceapi")
	worker, migrate := c.ours(t, "worker"), c.ours(t, "migrate")
	pod := func(namespace string, labels map[string]string) peer {
		return peer{namespace: namespace, name: "a pod", labels: labels}
	}
	at := func(address string) peer { return peer{name: address, address: address} }
	gateway, monitoring := pod("gateway", nil), pod("monitoring", nil)
	public := at("151.101.1.1")
	stranger, neighbour := pod("elsewhere", nil), pod("almoner", nil)
	dns := pod("kube-system", map[string]string{"k8s-app": "kube-dns"})
	stores, store, otherStore := pod("stores", nil), at("10.20.0.5"), at("10.20.0.7")
	all := []peer{authserver, resourceapi, worker, migrate}
	type line struct {
		from, to []peer
		port     int32
		may      bool
	}
	const allowed, forbidden = true, false
	both := []line{
		{[]peer{gateway, resourceapi}, []peer{authserver}, 8081, allowed},
		{[]peer{stranger, neighbour, monitoring, worker, migrate}, []peer{authserver}, 8081, forbidden},
		{[]peer{at("203.0.113.9")}, []peer{authserver}, 8081, forbidden},
		{[]peer{gateway}, []peer{authserver}, 8082, forbidden},
		{[]peer{gateway}, []peer{resourceapi}, 8082, allowed},
		{[]peer{stranger, neighbour, authserver, worker}, []peer{resourceapi}, 8082, forbidden},
		{[]peer{authserver, resourceapi, worker}, []peer{monitoring}, 4318, allowed},
		{[]peer{migrate}, []peer{monitoring}, 4318, forbidden},
		{[]peer{authserver}, []peer{monitoring}, 9090, forbidden},
		{[]peer{authserver}, []peer{stranger}, 4318, forbidden},
		{[]peer{resourceapi}, []peer{public}, 4318, forbidden},
		{all, []peer{dns}, 53, allowed},
		{[]peer{authserver}, []peer{pod("kube-system", nil)}, 53, forbidden},
		{[]peer{authserver}, []peer{public, at("2606:4700::1111")}, 443, allowed},
		{[]peer{worker}, []peer{public}, 443, allowed},
		{[]peer{resourceapi, migrate}, []peer{public}, 443, forbidden},
		{[]peer{authserver}, []peer{public}, 80, forbidden},
		{[]peer{worker}, []peer{public}, 25, forbidden},
		{[]peer{worker}, []peer{at("10.0.0.1"), at("169.254.169.254")}, 443, forbidden},
		{[]peer{authserver}, []peer{
			stranger, at("10.0.0.1"), at("172.20.1.1"), at("192.168.1.1"), at("169.254.169.254"),
			at("100.100.100.200"), at("127.0.0.1"), at("224.0.0.1"), at("::1"), at("fd00:ec2::254"), at("fe80::1"),
			at("2002:a00:1::"), at("64:ff9b::a00:1"), at("::ffff:10.0.0.1"),
		}, 443, forbidden},
		{all, []peer{stores}, 22, forbidden},
	}
	var inBase, inExample []line // what only one of them says about mail servers, stores and metrics
	for _, port := range []int32{465, 587} {
		inBase = append(inBase, line{[]peer{authserver}, []peer{public}, port, forbidden})
		inExample = append(inExample, line{[]peer{authserver}, []peer{public}, port, allowed},
			line{[]peer{authserver}, []peer{at("10.0.0.1")}, port, forbidden},
			line{[]peer{resourceapi}, []peer{public}, port, forbidden})
	}
	for _, port := range []int32{5432, 6379} {
		inBase = append(inBase, line{all, []peer{stores}, port, allowed}, line{all, []peer{stranger}, port, forbidden})
		inExample = append(inExample, line{all, []peer{store}, port, allowed},
			line{all, []peer{otherStore, stores}, port, forbidden})
	}
	for _, service := range []peer{authserver, resourceapi, worker} {
		port := portOf(service.template, "metrics")
		inExample = append(inExample, line{[]peer{monitoring}, []peer{service}, port, allowed},
			line{[]peer{gateway, stranger, neighbour, authserver}, []peer{service}, port, forbidden})
	}
	check := func(where string, within cluster, lines []line) {
		for _, line := range lines {
			protocol := core.ProtocolTCP
			if line.port == 53 {
				protocol = core.ProtocolUDP
			}
			for _, from := range line.from {
				for _, to := range line.to {
					if got := within.allows(t, from, to, protocol, line.port); got != line.may {
						t.Errorf("%s: %s %s to %s:%d: %v", where, from.namespace, from.name, to.name, line.port, got)
					}
				}
			}
		}
	}
	check("base", base, slices.Concat(both, inBase))
	check("example", c, slices.Concat(both, inExample))
}

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
