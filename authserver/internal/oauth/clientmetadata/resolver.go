// Package clientmetadata fetches and caches client metadata documents, and verifies the assertions of clients whose
// documents have keys (Verifier).
//
// A client that is not registered here may be known by its metadata document (OAuth Client ID Metadata Document, which
// MCP clients use) if this deployment serves the document's host or path. The user at the browser chooses the URL, so:
//
//  1. a URL that is not served costs a string comparison, and no connection;
//  2. only public IP addresses are dialled (shared/net/publicnet);
//  3. a response is short (5 KB), fast (5 s) and plain JSON, and comes from the URL itself: redirects are
//     not followed;
//  4. concurrent requests for one URL share one fetch. Each host has a limit of concurrent fetches, with a
//     separate limit for URLs that were never used. A failure is remembered for 30 s;
//  5. a document is stored for as long as its Cache-Control says, within 30 s and 24 h, in the store that
//     all processes share. The copy replaces a document that cannot be fetched for up to client.CacheLife.
//     A document that can be fetched and is invalid is refused.
//
// Package client decides whether a document is valid. engine calls this package for the client of an authorization
// request, and for the keys of a client that signs. Any other token request never waits for the document's host.
package clientmetadata

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// A Cache stores client metadata. Its errors are client.ErrNotServed for a client that an operator has removed, or wrap
// store.ErrUnavailable.
type Cache interface {
	// ClientCopy returns a copy, and false if there is none.
	ClientCopy(ctx context.Context, id uuid.UUID) (client.CachedClient, bool, error)
	// StoreClientCopy stores a copy, replacing an earlier one. It returns a *client.DocumentError if the copy cannot be
	// stored.
	StoreClientCopy(ctx context.Context, c client.CachedClient) error
	// SetClientPlatform sets the platform of a stored client.
	SetClientPlatform(ctx context.Context, id uuid.UUID, platform string) error
}

// Deps are the dependencies of a Resolver.
type Deps struct {
	Domains client.Domains
	Trusted *x509.CertPool // for development only (see newFetcher); nil otherwise
	Cache   Cache
	Now     func() time.Time
	Log     *slog.Logger
}

// A Resolver returns the clients that have metadata documents. It is safe for concurrent use.
type Resolver struct {
	Deps
	fetch    *fetcher
	flights  singleflight.Group
	fetches  *inflight.Requests[queue]
	failures *lru.Cache[string, failure] // by address; bounded, because anyone can invent addresses
}

// A queue is the fetches from one host, of documents that were fetched before or of others. Anyone can invent URLs;
// those cannot delay clients that are in use.
type queue struct {
	host  string
	known bool
}

const (
	atOnce    = 4  // concurrent fetches in one queue
	maxQueued = 32 // requests that may wait in one queue
)

// errQueueFull is not the document's fault, so it is not remembered as a failure.
var errQueueFull = fmt.Errorf("%w: too many reads from its host are in progress", client.ErrUnreachable)

const (
	failureLife = 30 * time.Second
	maxFailures = 1024
)

// A failure is why a document could not be used, until it may be fetched again.
type failure struct {
	err  error
	ends time.Time
}

// New returns a Resolver. It fetches nothing yet.
func New(d Deps) *Resolver {
	failures, _ := lru.New[string, failure](maxFailures) // fails only if the size is not positive
	fetches := inflight.New[queue](inflight.Bounds{InFlight: atOnce + maxQueued, AtOnce: atOnce})
	r := &Resolver{Deps: d, failures: failures, fetches: fetches}
	ports := []uint16{443}
	for place := range d.Domains {
		host, _, _ := strings.Cut(place, "/")
		if _, text, err := net.SplitHostPort(host); err == nil {
			if port, err := strconv.ParseUint(text, 10, 16); err == nil {
				ports = append(ports, uint16(port))
			}
		}
	}
	r.fetch = newFetcher(ports, d.Trusted)
	return r
}

// Serves reports whether this deployment now serves clients with a document at this address.
func (r *Resolver) Serves(address string) bool {
	_, ok := r.Domains.Serve(address)
	return ok
}

// Client returns the client whose document is at address: from a fresh copy, from the document, or from an old copy
// while the document cannot be fetched. Its errors are client.ErrNotServed, a *client.DocumentError or
// client.ErrUnreachable, or wrap store.ErrUnavailable.
func (r *Resolver) Client(ctx context.Context, address string) (client.Client, error) {
	return r.client(ctx, address, func(c client.CachedClient) bool { return r.Now().Before(c.FreshUntil) })
}

// Refreshed is like Client, for callers that suspect the copy to be out of date. It ignores copies older than the
// minimum lifetime of a document.
func (r *Resolver) Refreshed(ctx context.Context, address string) (client.Client, error) {
	return r.client(ctx, address, func(c client.CachedClient) bool { return r.Now().Sub(c.FetchedAt) < shortestLife })
}

func (r *Resolver) client(
	ctx context.Context, address string, fresh func(client.CachedClient) bool,
) (client.Client, error) {
	platform, ok := r.Domains.Serve(address)
	id, err := accesstoken.ClientID(address)
	if !ok || err != nil {
		return client.Client{}, client.ErrNotServed
	}
	copied, found, err := r.Cache.ClientCopy(ctx, id)
	if err != nil {
		return client.Client{}, err
	}
	found = found && copied.Address == address
	if found && copied.Platform != platform { // the deployment's setting may have changed
		if err := r.Cache.SetClientPlatform(ctx, id, platform); err != nil {
			return client.Client{}, err
		}
		copied.Platform = platform
	}
	if found && fresh(copied) {
		return copied.Client, nil
	}
	c, err := r.read(ctx, address, platform, found)
	if errors.Is(err, client.ErrUnreachable) && found && r.Now().Sub(copied.FetchedAt) < client.CacheLife {
		return copied.Client, nil
	}
	return c, err
}

// read fetches a document once for all waiting callers, unless that failed recently. known: it was fetched before.
func (r *Resolver) read(ctx context.Context, address, platform string, known bool) (client.Client, error) {
	if recent, found := r.failures.Get(address); found && r.Now().Before(recent.ends) {
		return client.Client{}, recent.err
	}
	outcome := r.flights.DoChan(address, func() (any, error) {
		// The first caller may be cancelled; the others still wait.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.fetch.within+keysTimeout)
		defer cancel()
		c, err := r.fetchAndStore(ctx, address, platform, known)
		refused, _ := errors.AsType[*client.DocumentError](err)
		if refused != nil || (errors.Is(err, client.ErrUnreachable) && !errors.Is(err, errQueueFull)) {
			r.failures.Add(address, failure{err, r.Now().Add(failureLife)})
			r.Log.WarnContext(ctx, "client metadata document not usable; using the cached copy, if any",
				"client_id", address, "error", err)
		}
		return c, err
	})
	select {
	case <-ctx.Done():
		return client.Client{}, fmt.Errorf("%w: %w", client.ErrUnreachable, ctx.Err())
	case done := <-outcome:
		c, _ := done.Val.(client.Client)
		return c, done.Err
	}
}

// fetchAndStore fetches a document when it is its turn, and stores the copy.
func (r *Resolver) fetchAndStore(ctx context.Context, address, platform string, known bool) (client.Client, error) {
	name, _ := client.ParseAddress(address)
	turn, err := r.fetches.Enter(ctx, queue{name, known})
	if err != nil {
		return client.Client{}, errQueueFull
	}
	defer turn.Leave(false)
	body, life, err := r.fetch.get(ctx, address, maxDocument)
	if err != nil {
		return client.Client{}, err
	}
	document, err := parse(body)
	if err != nil {
		return client.Client{}, err
	}
	c, err := document.Accept(address, platform)
	if err != nil {
		return client.Client{}, err
	}
	if c.AuthMethod == client.PrivateKeyJWT {
		keysLife, err := r.readKeys(ctx, &c)
		if err != nil {
			return client.Client{}, err
		}
		life = min(life, keysLife)
	}
	now := r.Now()
	fetched := client.CachedClient{Client: c, FetchedAt: now, FreshUntil: now.Add(life)}
	if err := r.Cache.StoreClientCopy(ctx, fetched); err != nil {
		return client.Client{}, err
	}
	return c, nil
}

// readKeys fetches the client's keys if they are not in its document, and checks them.
func (r *Resolver) readKeys(ctx context.Context, c *client.Client) (life time.Duration, err error) {
	life = longestLife
	if c.KeysURL != "" {
		ctx, cancel := context.WithTimeout(ctx, keysTimeout)
		defer cancel()
		if c.Keys, life, err = r.fetch.get(ctx, c.KeysURL, maxKeys); err != nil {
			if wrong, ok := errors.AsType[*client.DocumentError](err); ok {
				return 0, &client.DocumentError{Message: "At its jwks_uri: " + wrong.Message}
			}
			return 0, fmt.Errorf("read keys: %w", err)
		}
	}
	if err := checkKeys(c.Keys); err != nil {
		return 0, &client.DocumentError{Message: "Its keys are not valid: " + err.Error() + "."}
	}
	return life, nil
}

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
	switch status := response.StatusCode; {
	case status == http.StatusOK:
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return fmt.Errorf("%w: status %d", client.ErrUnreachable, status)
	default:
		return errors.Join(client.ErrUnreachable, &client.DocumentError{
			Message: fmt.Sprintf("Its address returned status %d instead of 200. Redirects are not followed.", status),
		})
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
