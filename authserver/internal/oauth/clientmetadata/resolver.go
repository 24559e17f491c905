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
	"golang.org/x/sync/singleflight"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/identity"
)

// Cache keep what documents said. Their errors are client.ErrNotServed for a client that an operator has removed, or
// wrap store.ErrUnavailable.
type Cache interface {
	// ClientCopy reads a copy; false: there is none.
	ClientCopy(ctx context.Context, id uuid.UUID) (client.CachedClient, bool, error)
	// KeepClientCopy puts a copy in the place of an earlier one. It returns a *client.DocumentError for what cannot be
	// kept.
	KeepClientCopy(ctx context.Context, c client.CachedClient) error
	// SetClientPlatform says which platform the client of a copy counts as.
	SetClientPlatform(ctx context.Context, id uuid.UUID, platform string) error
}

// Deps are what a Library works with.
type Deps struct {
	Domains   client.Domains
	Trusted   *x509.CertPool     // for development alone (newFetcher); nil otherwise
	CheckKeys func([]byte) error // is this a JWK set by which a client can be known?
	Cache     Cache
	Now       func() time.Time
	Log       *slog.Logger
}

// A Resolver knows the clients that have documents. It is safe for concurrent use.
type Resolver struct {
	Deps
	fetch   *fetcher
	flights singleflight.Group
	hosts   map[string]*host
	misses  failureCache
}

// New makes a Library. It reads nothing yet.
func New(d Deps) *Resolver {
	l := &Resolver{Deps: d, hosts: map[string]*host{}, misses: failureCache{now: d.Now}}
	ports := []uint16{443}
	for _, name := range d.Domains.Hosts() {
		l.hosts[name] = newHost()
		if _, text, err := net.SplitHostPort(name); err == nil {
			if port, err := strconv.ParseUint(text, 10, 16); err == nil {
				ports = append(ports, uint16(port))
			}
		}
	}
	l.fetch = newFetcher(ports, d.Trusted)
	return l
}

// Serves says whether clients with a document at this address are served here at all, now.
func (l *Resolver) Serves(address string) bool {
	_, ok := l.Domains.Serve(address)
	return ok
}

// Client returns the client whose document is at address: from a copy that is fresh, from the document, or from a
// former copy while the document cannot be read. Its errors are client.ErrNotServed, a *client.DocumentError or
// client.ErrUnreachable, or wrap store.ErrUnavailable.
func (l *Resolver) Client(ctx context.Context, address string) (client.Client, error) {
	return l.client(ctx, address, func(c client.CachedClient) bool { return l.Now().Before(c.FreshUntil) })
}

// Refreshed is Client for somebody who has reason to think that the copy is out of date: it is not believed beyond the
// shortest life that a document may have.
func (l *Resolver) Refreshed(ctx context.Context, address string) (client.Client, error) {
	return l.client(ctx, address, func(c client.CachedClient) bool { return l.Now().Sub(c.FetchedAt) < shortestLife })
}

func (l *Resolver) client(
	ctx context.Context,
	address string,
	good func(client.CachedClient) bool,
) (client.Client, error) {
	platform, ok := l.Domains.Serve(address)
	id, err := identity.OfClient(address)
	if !ok || err != nil {
		return client.Client{}, client.ErrNotServed
	}
	copied, found, err := l.Cache.ClientCopy(ctx, id)
	if err != nil {
		return client.Client{}, err
	}
	found = found && copied.Address == address
	if found && copied.Platform != platform { // which is the deployment's to say, now
		if err := l.Cache.SetClientPlatform(ctx, id, platform); err != nil {
			return client.Client{}, err
		}
		copied.Platform = platform
	}
	if found && good(copied) {
		return copied.Client, nil
	}
	c, err := l.read(ctx, address, platform, found)
	if errors.Is(err, client.ErrUnreachable) && found && l.Now().Sub(copied.FetchedAt) < client.CacheLife {
		return copied.Client, nil
	}
	return c, err
}

// read reads a document for all who wait for it, unless it could not be read a moment ago. known: it was read before.
func (l *Resolver) read(ctx context.Context, address, platform string, known bool) (client.Client, error) {
	if err := l.misses.find(address); err != nil {
		return client.Client{}, err
	}
	outcome := l.flights.DoChan(address, func() (any, error) {
		// Whoever asked first may leave; the others still wait.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout+keysTimeout)
		defer cancel()
		c, err := l.queued(ctx, address, platform, known)
		refused, _ := errors.AsType[*client.DocumentError](err)
		if refused != nil || (errors.Is(err, client.ErrUnreachable) && !errors.Is(err, errQueueFull)) {
			l.misses.add(address, err)
			l.Log.WarnContext(
				ctx,
				"a client's document is not usable; a copy that was read before stands in where there is one",
				"client_id",
				address,
				"error",
				err,
			)
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

func (l *Resolver) queued(ctx context.Context, address, platform string, known bool) (client.Client, error) {
	name, _ := client.ParseAddress(address)
	leave, err := l.hosts[name].line(known).enter(ctx)
	if err != nil {
		return client.Client{}, err
	}
	defer leave()
	return l.fetchAndStore(ctx, address, platform)
}

func (l *Resolver) fetchAndStore(ctx context.Context, address, platform string) (client.Client, error) {
	body, life, err := l.fetch.get(ctx, address, maxDocument)
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
		keysLife, err := l.readKeys(ctx, &c)
		if err != nil {
			return client.Client{}, err
		}
		life = min(life, keysLife)
	}
	now := l.Now()
	if err := l.Cache.KeepClientCopy(ctx, client.CachedClient{
		Client:     c,
		FetchedAt:  now,
		FreshUntil: now.Add(life),
	}); err != nil {
		return client.Client{}, err
	}
	return c, nil
}

// readKeys fetches the keys of a client that keeps them beside its document, and looks at them wherever they are from.
func (l *Resolver) readKeys(ctx context.Context, c *client.Client) (life time.Duration, err error) {
	life = longestLife
	if c.KeysURL != "" {
		ctx, cancel := context.WithTimeout(ctx, keysTimeout)
		defer cancel()
		if c.Keys, life, err = l.fetch.get(ctx, c.KeysURL, maxKeys); err != nil {
			return 0, fmt.Errorf("its keys: %w", err)
		}
	}
	if err := l.CheckKeys(c.Keys); err != nil {
		return 0, &client.DocumentError{Message: "Its keys cannot be used: " + err.Error() + "."}
	}
	return life, nil
}
