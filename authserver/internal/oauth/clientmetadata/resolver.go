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
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
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
	for _, name := range d.Domains.Hosts() {
		if _, text, err := net.SplitHostPort(name); err == nil {
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
