// Package publicnet connects to public addresses only, for URLs that come from users or other parties.
//
// It checks the address when it is dialled, after the name was resolved, so that no name, redirect or later DNS
// response leads into the network of the deployment. authserver uses it to read client metadata documents, and
// resourceapi to deliver webhooks.
package publicnet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
	"golang.org/x/net/idna"
)

const (
	maxHeader      = 16 << 10        // of a response
	resolveTimeout = time.Second     // of CheckHost
	dialTimeout    = 3 * time.Second // to connect
)

// ErrProhibited is the error of dialling an address that is not public, or a port that browsers refuse.
var ErrProhibited = ssrf.ErrProhibitedIP

// Errors of CheckHost.
var (
	ErrNotPublic = errors.New("not a public host")
	ErrMalformed = errors.New("not a host name or an address in its usual spelling")
)

// Options configure a Network.
type Options struct {
	Ports []uint16 // that may be dialled; empty for all
	// Trusted is for development only. If not nil, loopback addresses are public, and these certificates are trusted.
	Trusted *x509.CertPool
}

// A Network decides which addresses may be dialled. It is safe for concurrent use.
type Network struct {
	guardian *ssrf.Guardian
	options  Options
}

// New returns a Network.
func New(o Options) *Network {
	options := []ssrf.Option{ssrf.WithPorts(o.Ports...)}
	if o.Trusted != nil {
		options = append(options, ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.0/8")),
			ssrf.WithAllowedV6Prefixes(netip.MustParsePrefix("::1/128")))
	}
	return &Network{ssrf.New(options...), o}
}

// TrustedPool returns a pool of the system's certificates and the given ones in PEM, or nil if none are given.
func TrustedPool(certificates string) (*x509.CertPool, error) {
	if certificates == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(certificates)) {
		return nil, errors.New("contains no PEM certificate")
	}
	return pool, nil
}

// OnThisMachine reports whether the host of a URL is localhost or a loopback address.
func OnThisMachine(address string) bool {
	parsed, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(parsed.Hostname())
	return parsed.Hostname() == "localhost" || (err == nil && ip.IsLoopback())
}

// Transport returns an http.Transport that dials allowed addresses only. It uses no proxy, because a proxy would dial
// without the check, and keeps no idle connections.
func (n *Network) Transport() *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: n.control}
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: n.options.Trusted},
		DisableCompression:     true, // size limits count uncompressed bytes
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader,
	}
}

// CheckHost checks the host of a URL. It returns ErrNotPublic if the host is localhost, an address that is not public,
// a name without a dot, or a name that currently resolves only to such addresses. It returns ErrMalformed for a host
// that programs parse in different ways, such as an address written as one number. It accepts a name that cannot be
// resolved, because the address is checked again when it is dialled.
func (n *Network) CheckHost(ctx context.Context, host string) error {
	if strings.Contains(host, ":") {
		return n.checkAddress(host)
	}
	name, err := idna.Lookup.ToASCII(host) // as net/http does
	if err != nil {
		return ErrMalformed
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if !isLabel(label) {
			return ErrMalformed
		}
	}
	if len(labels) == 1 && n.options.Trusted == nil { // a host of the deployment's own network
		return ErrNotPublic
	}
	switch last := labels[len(labels)-1]; {
	case last == "localhost" || last == "localdomain":
		return n.checkAddress("127.0.0.1")
	case isNumber(last):
		return n.checkAddress(name)
	}
	return n.checkName(ctx, name)
}

// checkAddress checks an IP address.
func (n *Network) checkAddress(text string) error {
	address, err := netip.ParseAddr(text)
	switch {
	case err != nil || address.Zone() != "":
		return ErrMalformed
	case n.guardian.SafeAddr(address) != nil:
		return ErrNotPublic
	}
	return nil
}

// checkName returns ErrNotPublic if the name resolves and none of its addresses may be dialled.
func (n *Network) checkName(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil || len(addresses) == 0 {
		return nil
	}
	for _, address := range addresses {
		if n.guardian.SafeAddr(address.Unmap()) == nil {
			return nil
		}
	}
	return ErrNotPublic
}

// isLabel reports whether text may be a part of a host name.
func isLabel(text string) bool {
	for _, r := range text {
		if !(r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z') {
			return false
		}
	}
	return text != "" && len(text) <= 63
}

// isNumber reports whether the last label of a host makes it an IPv4 address (WHATWG URL, section 3.5).
func isNumber(label string) bool {
	return strings.Trim(label, "0123456789") == "" ||
		(strings.HasPrefix(label, "0x") && strings.Trim(label[2:], "0123456789abcdef") == "")
}

// refusedPorts are the ports that browsers refuse to call (Fetch, section 2.9, port blocking): servers of other
// protocols listen there and could take a request for commands of their own.
var refusedPorts = map[uint16]bool{
	0: true, 1: true, 7: true, 9: true, 11: true, 13: true, 15: true, 17: true, 19: true, 20: true, 21: true, 22: true,
	23: true, 25: true, 37: true, 42: true, 43: true, 53: true, 69: true, 77: true, 79: true, 87: true, 95: true,
	101: true, 102: true, 103: true, 104: true, 109: true, 110: true, 111: true, 113: true, 115: true, 117: true,
	119: true, 123: true, 135: true, 137: true, 139: true, 143: true, 161: true, 179: true, 389: true, 427: true,
	465: true, 512: true, 513: true, 514: true, 515: true, 526: true, 530: true, 531: true, 532: true, 540: true,
	548: true, 554: true, 556: true, 563: true, 587: true, 601: true, 636: true, 989: true, 990: true, 993: true,
	995: true, 1719: true, 1720: true, 1723: true, 2049: true, 3659: true, 4045: true, 4190: true, 5060: true,
	5061: true, 6000: true, 6566: true, 6665: true, 6666: true, 6667: true, 6668: true, 6669: true, 6679: true,
	6697: true, 10080: true,
}

// CallablePort reports whether text is a port that may be called: 1 to 65535, except those that browsers refuse.
func CallablePort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && !refusedPorts[uint16(port)]
}

// control refuses to dial a refused port or an address that is not public.
func (n *Network) control(network, address string, connection syscall.RawConn) error {
	if _, port, err := net.SplitHostPort(address); err != nil || !CallablePort(port) {
		return fmt.Errorf("%w: %w", ErrProhibited, ssrf.ErrProhibitedPort)
	}
	return n.guardian.Safe(network, address, connection)
}
