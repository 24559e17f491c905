package clientmetadata

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/net/publicnet"
)

// Limits of one fetch.
const (
	maxDocument    = 5 << 10
	maxKeys        = 32 << 10
	fetchTimeout   = 5 * time.Second // from name resolution to the last byte
	keysTimeout    = 3 * time.Second
	shortestLife   = 30 * time.Second
	longestLife    = 24 * time.Hour
	unspecifiedFor = 5 * time.Minute // lifetime without Cache-Control
)

// A fetcher reads JSON from public https URLs.
type fetcher struct {
	client *http.Client
	within time.Duration // of one fetch
}

// newFetcher returns a fetcher that dials the given ports. If trusted is not nil, which is for development, it also
// accepts those certificates and dials loopback addresses.
func newFetcher(ports []uint16, trusted *x509.CertPool) *fetcher {
	return &fetcher{within: fetchTimeout, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     publicnet.New(publicnet.Options{Ports: ports, Trusted: trusted}).Transport(),
	}}
}

// get reads at most most bytes of JSON, and returns how long they are valid. It returns a *client.DocumentError if the
// response is invalid, and client.ErrUnreachable if there is none or it is no document. If the host did respond, the
// latter is joined with a *client.DocumentError.
func (f *fetcher) get(ctx context.Context, address string, most int64) (body []byte, life time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.within)
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
	if err := checkResponse(response); err != nil {
		return nil, 0, err
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, most+1))
	if err == nil {
		// At the deadline the connection is closed, the host notices, and the end of its response may still arrive. A
		// part of a document would then pass for the whole.
		err = ctx.Err()
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", client.ErrUnreachable, err)
	}
	if int64(len(body)) > most {
		return nil, 0, &client.DocumentError{Message: fmt.Sprintf("It is larger than %d bytes.", most)}
	}
	return body, lifeOf(response.Header), nil
}

func checkResponse(response *http.Response) error {
	status := response.StatusCode
	unusable := &client.DocumentError{
		Message: fmt.Sprintf("Its address returned status %d instead of 200. Redirects are not followed.", status),
	}
	switch {
	case status == http.StatusOK:
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return fmt.Errorf("%w: status %d", client.ErrUnreachable, status)
	default:
		return errors.Join(client.ErrUnreachable, unusable)
	}
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil ||
		(kind != "application/json" && !(strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))) {
		return &client.DocumentError{Message: "Its Content-Type must be application/json."}
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &client.DocumentError{Message: "It must not be compressed."}
	}
	return nil
}

// lifeOf parses Cache-Control (RFC 9111, section 5.2.2). This server is a shared cache.
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

// parse decodes a document by the rules of JSON version 2. It rejects a duplicate key, a key in another case and a
// value of another type, because parsers would disagree about their meaning.
func parse(body []byte) (d client.Document, err error) {
	if err := json.Unmarshal(body, &d); err != nil {
		return client.Document{}, &client.DocumentError{
			Message: "It is not a valid JSON object with client metadata, or a key appears more than once.",
		}
	}
	if string(d.Keys) == "null" {
		d.Keys = nil
	}
	return d, nil
}
