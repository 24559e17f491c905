package web

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies are the address ranges whose X-Forwarded-For is trusted. If empty, none is (contract, section 7).
type Proxies []netip.Prefix

// ParseProxies parses address ranges in CIDR notation or single addresses, separated by commas.
func ParseProxies(text string) (Proxies, error) {
	var out Proxies
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			address, err := netip.ParseAddr(part)
			if err != nil {
				return nil, fmt.Errorf("%q is neither an address nor a range like 10.0.0.0/8", part)
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

func (p Proxies) trust(address netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// Trusted reports whether the connection of the request comes from a trusted proxy.
func (p Proxies) Trusted(r *http.Request) bool {
	connection, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && p.trust(connection.Addr().Unmap())
}

// ClientAddress returns the address of the caller: the address of the connection, or, if that is a trusted
// proxy, the nearest address in X-Forwarded-For that is not a trusted proxy. Addresses before an untrusted
// one are ignored.
func (p Proxies) ClientAddress(r *http.Request) netip.Addr {
	connection, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	address := connection.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && p.trust(address); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			return address
		}
		address = hop.Unmap()
	}
	return address
}

// Network returns the network that counts as one caller: a single IPv4 address, or the /64 of an IPv6
// address, which belongs to one caller (RFC 6177).
func Network(address netip.Addr) string {
	if address = address.Unmap(); address.Is6() {
		if prefix, err := address.WithZone("").Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return address.String()
}
