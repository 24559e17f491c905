package services

import (
	"net/netip"
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	for _, w := range c.workloads() {
		if w.name == name {
			return peer{namespace: "almoner", name: name, labels: w.template.Labels, template: w.template}
		}
	}
	t.Fatalf("there is no workload %s", name)
	return peer{}
}

func matches(t *testing.T, selector *meta.LabelSelector, of map[string]string) bool {
	t.Helper()
	chosen, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
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
		if from.template.Labels != nil && matches(t, &policy.Spec.PodSelector, from.labels) {
			for _, rule := range policy.Spec.Egress {
				out = out ||
					isPort(rule.Ports, to, protocol, port) &&
						slices.ContainsFunc(
							rule.To,
							func(p networking.NetworkPolicyPeer) bool { return isPeer(t, p, policy.Namespace, to) },
						)
			}
		}
		if to.template.Labels != nil && matches(t, &policy.Spec.PodSelector, to.labels) {
			for _, rule := range policy.Spec.Ingress {
				in = in ||
					isPort(rule.Ports, to, protocol, port) &&
						slices.ContainsFunc(
							rule.From,
							func(p networking.NetworkPolicyPeer) bool { return isPeer(t, p, policy.Namespace, from) },
						)
			}
		}
	}
	return out && in
}

func TestNetworkPolicies_DenyByDefault(t *testing.T) {
	c := example(t)
	for _, w := range c.workloads() {
		shut := slices.ContainsFunc(c.policies, func(p networking.NetworkPolicy) bool {
			return matches(t, &p.Spec.PodSelector, w.template.Labels) && len(p.Spec.Ingress) == 0 &&
				len(p.Spec.Egress) == 0 &&
				slices.Contains(p.Spec.PolicyTypes, networking.PolicyTypeIngress) &&
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
	stranger, neighbour := pod("elsewhere", nil), pod("almoner", nil)
	dns := pod("kube-system", map[string]string{"k8s-app": "kube-dns"})
	for _, line := range []struct {
		from, to peer
		port     int32
		may      bool
	}{
		{gateway, authserver, 8081, true},
		{gateway, resourceapi, 8082, true},
		{gateway, authserver, 8082, false},
		{stranger, authserver, 8081, false},
		{neighbour, authserver, 8081, false},
		{monitoring, authserver, 8081, false},
		{stranger, resourceapi, 8082, false},
		{neighbour, resourceapi, 8082, false},
		{at("203.0.113.9"), authserver, 8081, false},
		{resourceapi, authserver, 8081, true},
		{authserver, resourceapi, 8082, false},
		{worker, authserver, 8081, false},
		{migrate, authserver, 8081, false},
		{worker, resourceapi, 8082, false},
		{authserver, monitoring, 4318, true},
		{resourceapi, monitoring, 4318, true},
		{worker, monitoring, 4318, true},
		{migrate, monitoring, 4318, false},
		{authserver, monitoring, 9090, false},
		{authserver, stranger, 4318, false},
		{resourceapi, at("151.101.1.1"), 4318, false},
		{authserver, dns, 53, true},
		{resourceapi, dns, 53, true},
		{worker, dns, 53, true},
		{migrate, dns, 53, true},
		{authserver, pod("kube-system", nil), 53, false},
		{authserver, stranger, 443, false},
		{authserver, at("151.101.1.1"), 443, true},
		{authserver, at("2606:4700::1111"), 443, true},
		{authserver, at("151.101.1.1"), 80, false},
		{resourceapi, at("151.101.1.1"), 443, false},
		{worker, at("151.101.1.1"), 443, true},
		{worker, at("151.101.1.1"), 25, false},
		{worker, at("10.0.0.1"), 443, false},
		{worker, at("169.254.169.254"), 443, false},
		{migrate, at("151.101.1.1"), 443, false},
		{authserver, at("10.0.0.1"), 443, false},
		{authserver, at("172.20.1.1"), 443, false},
		{authserver, at("192.168.1.1"), 443, false},
		{authserver, at("169.254.169.254"), 443, false},
		{authserver, at("100.100.100.200"), 443, false},
		{authserver, at("127.0.0.1"), 443, false},
		{authserver, at("224.0.0.1"), 443, false},
		{authserver, at("::1"), 443, false},
		{authserver, at("fd00:ec2::254"), 443, false},
		{authserver, at("fe80::1"), 443, false},
		{authserver, at("2002:a00:1::"), 443, false},
		{authserver, at("64:ff9b::a00:1"), 443, false},
		{authserver, at("::ffff:10.0.0.1"), 443, false},
	} {
		for where, within := range map[string]cluster{"base": base, "example": c} {
			protocol := core.ProtocolTCP
			if line.port == 53 {
				protocol = core.ProtocolUDP
			}
			if got := within.allows(t, line.from, line.to, protocol, line.port); got != line.may {
				t.Errorf(
					"%s: %s %s to %s:%d: %v",
					where,
					line.from.namespace,
					line.from.name,
					line.to.name,
					line.port,
					got,
				)
			}
		}
	}
	for _, port := range []int32{465, 587} { // mail servers
		if base.allows(t, authserver, at("151.101.1.1"), core.ProtocolTCP, port) ||
			!c.allows(t, authserver, at("151.101.1.1"), core.ProtocolTCP, port) ||
			c.allows(t, authserver, at("10.0.0.1"), core.ProtocolTCP, port) ||
			c.allows(t, resourceapi, at("151.101.1.1"), core.ProtocolTCP, port) {
			t.Errorf("port %d: only authserver of the example may reach public mail servers", port)
		}
	}
	stores := pod("stores", nil)
	for _, service := range []peer{authserver, resourceapi, worker, migrate} {
		for _, port := range []int32{5432, 6379} {
			if !base.allows(t, service, stores, core.ProtocolTCP, port) ||
				base.allows(t, service, stranger, core.ProtocolTCP, port) {
				t.Errorf("base: %s and the stores' port %d", service.name, port)
			}
			if !c.allows(t, service, at("10.20.0.5"), core.ProtocolTCP, port) ||
				c.allows(t, service, at("10.20.0.7"), core.ProtocolTCP, port) ||
				c.allows(t, service, stores, core.ProtocolTCP, port) {
				t.Errorf("example: %s and the stores' port %d", service.name, port)
			}
		}
		if base.allows(t, service, stores, core.ProtocolTCP, 22) {
			t.Errorf("%s reaches any port of the stores", service.name)
		}
		if service.name == "migrate" {
			continue
		}
		for _, reader := range []peer{gateway, stranger, neighbour, authserver, monitoring} {
			got := c.allows(t, reader, service, core.ProtocolTCP, portOf(service.template, "metrics"))
			if got != (reader.namespace == "monitoring") {
				t.Errorf("%s %s reads the metrics of %s: %v", reader.namespace, reader.name, service.name, got)
			}
		}
	}
}
