package clientmetadata

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"code.dny.dev/ssrf"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

// Limits of one reading.
const (
	maxDocument    = 5 << 10
	maxKeys        = 32 << 10
	maxHeader      = 16 << 10
	fetchTimeout   = 5 * time.Second // from the name's resolution to the last byte
	keysTimeout    = 3 * time.Second
	dialTimeout    = 3 * time.Second
	shortestLife   = 30 * time.Second
	longestLife    = 24 * time.Hour
	unspecifiedFor = 5 * time.Minute // the life of what comes without Cache-Control
)

// A fetcher reads JSON from public https addresses.
type fetcher struct{ client *http.Client }

// newFetcher makes a fetcher that dials the given ports. With trusted, which is for development, it also believes those
// certificates and reads from this very machine.
func newFetcher(ports []uint16, trusted *x509.CertPool) *fetcher {
	options := []ssrf.Option{ssrf.WithPorts(ports...)}
	if trusted != nil {
		options = append(options, ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.0/8")),
			ssrf.WithAllowedV6Prefixes(netip.MustParsePrefix("::1/128")))
	}
	dialer := &net.Dialer{Timeout: dialTimeout, Control: ssrf.New(options...).Safe}
	return &fetcher{&http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: nil, // a proxy would dial for us, and not ask whether it may
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, address)
			},
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted},
			DisableCompression:     true, // five kilobytes are five kilobytes
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: maxHeader,
		},
	}}
}

// get reads at most most bytes of JSON, and says for how long they are good. What comes back is bad:
// *client.DocumentError. Nothing comes back, or something else than a document: client.ErrUnreachable, beside a
// *client.DocumentError where the host did answer.
func (f *fetcher) get(ctx context.Context, address string, most int64) (body []byte, life time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", client.ErrUnreachable, err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "Almoner")
	response, err := f.client.Do(request)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", client.ErrUnreachable, err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := checkAnswer(response); err != nil {
		return nil, 0, err
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, most+1))
	if err == nil {
		// When time is up the connection is closed, the host notices, and the end of its answer may still arrive: a
		// part of a document would be taken for the whole.
		err = ctx.Err()
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", client.ErrUnreachable, err)
	}
	if int64(len(body)) > most {
		return nil, 0, &client.DocumentError{Message: fmt.Sprintf("It is longer than %d bytes.", most)}
	}
	return body, lifeOf(response.Header), nil
}

func checkAnswer(response *http.Response) error {
	status := response.StatusCode
	answered := &client.DocumentError{
		Message: fmt.Sprintf("Its address answers %d and not 200; redirects are not followed.", status),
	}
	switch {
	case status == http.StatusOK:
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return fmt.Errorf("%w: it answers %d", client.ErrUnreachable, status)
	default:
		return errors.Join(client.ErrUnreachable, answered)
	}
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil ||
		(kind != "application/json" && !(strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))) {
		return &client.DocumentError{Message: "Its Content-Type is not application/json."}
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &client.DocumentError{Message: "It is compressed, though that was not asked for."}
	}
	return nil
}

// lifeOf reads Cache-Control (RFC 9111, section 5.2.2). We are a shared cache.
func lifeOf(header http.Header) time.Duration {
	life, shared := unspecifiedFor, false
	for _, directive := range strings.Split(strings.Join(header.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache", "private":
			return shortestLife
		case "max-age", "s-maxage":
			seconds, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31)
			if err == nil && (name == "s-maxage" || !shared) {
				life, shared = time.Duration(seconds)*time.Second, name == "s-maxage"
			}
		}
	}
	return min(max(life, shortestLife), longestLife)
}
