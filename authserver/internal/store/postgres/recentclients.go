package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

// Limits of the cache of recent clients: the lifetime and the number of entries.
const (
	recentFor = time.Second
	maxRecent = 1024
)

// recentClients caches clients, and identifiers of no client. Every transaction of this process may change a
// client and clears the cache; changes by other processes are visible after recentFor.
type recentClients struct {
	mu   sync.Mutex
	kept map[uuid.UUID]recent
}

type recent struct {
	client *client.Client // nil if there was none
	at     time.Time
}

func (r *recentClients) find(id uuid.UUID, now time.Time) (*client.Client, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, found := r.kept[id]
	return one.client, found && now.Sub(one.at) < recentFor
}

func (r *recentClients) put(id uuid.UUID, c *client.Client, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept == nil || len(r.kept) >= maxRecent {
		r.kept = map[uuid.UUID]recent{}
	}
	r.kept[id] = recent{c, now}
}

func (r *recentClients) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.kept)
}

// RecentClient is Client with its two newest live secrets, from a cache of up to one second. It is for
// requests that are refused in any case, so that garbage costs Postgres at most one read a second. Its result
// must not authorize anything.
func (s *Store) RecentClient(ctx context.Context, id uuid.UUID) (client.Client, error) {
	c, known := s.recent.find(id, time.Now())
	if !known {
		asked := time.Now()
		read, err := s.readClient(ctx, recentClientSQL, id)
		if err != nil && !errors.Is(err, client.ErrUnknown) {
			return client.Client{}, err
		}
		if err == nil {
			c = &read
		}
		s.recent.put(id, c, asked)
	}
	if c == nil {
		return client.Client{}, client.ErrUnknown
	}
	return *c, nil
}
