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
	"slices"
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

	labelCharacters = "-_0123456789abcdefghijklmnopqrstuvwxyz" // of a part of a host name
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
		if label == "" || len(label) > 63 || strings.Trim(label, labelCharacters) != "" {
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

// isNumber reports whether the last label of a host makes it an IPv4 address (WHATWG URL, section 3.5).
func isNumber(label string) bool {
	return strings.Trim(label, "0123456789") == "" ||
		(strings.HasPrefix(label, "0x") && strings.Trim(label[2:], "0123456789abcdef") == "")
}

// refusedPorts are the ports that browsers refuse to call (Fetch, section 2.9, port blocking): servers of other
// protocols listen there and could take a request for commands of their own.
var refusedPorts = []uint16{
	0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
	110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
	532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
	5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
}

// CallablePort reports whether text is a port that may be called: 1 to 65535, except those that browsers refuse.
func CallablePort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && !slices.Contains(refusedPorts, uint16(port))
}

// control refuses to dial a refused port or an address that is not public.
func (n *Network) control(network, address string, connection syscall.RawConn) error {
	if _, port, err := net.SplitHostPort(address); err != nil || !CallablePort(port) {
		return fmt.Errorf("%w: %w", ErrProhibited, ssrf.ErrProhibitedPort)
	}
	return n.guardian.Safe(network, address, connection)
}
