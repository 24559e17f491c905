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
	const allowed, forbidden = true, false
	for _, line := range []struct {
		from []peer
		to   []peer
		port int32
		may  bool
	}{
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
		{[]peer{authserver, resourceapi, worker, migrate}, []peer{dns}, 53, allowed},
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
	} {
		protocol := core.ProtocolTCP
		if line.port == 53 {
			protocol = core.ProtocolUDP
		}
		for _, from := range line.from {
			for _, to := range line.to {
				for where, within := range map[string]cluster{"base": base, "example": c} {
					if got := within.allows(t, from, to, protocol, line.port); got != line.may {
						t.Errorf("%s: %s %s to %s:%d: %v", where, from.namespace, from.name, to.name, line.port, got)
					}
				}
			}
		}
	}
	for _, port := range []int32{465, 587} { // mail servers
		if base.allows(t, authserver, public, core.ProtocolTCP, port) ||
			!c.allows(t, authserver, public, core.ProtocolTCP, port) ||
			c.allows(t, authserver, at("10.0.0.1"), core.ProtocolTCP, port) ||
			c.allows(t, resourceapi, public, core.ProtocolTCP, port) {
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
