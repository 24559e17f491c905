package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

// Limits of the cache of recent clients: the lifetime and the number of entries.
const (
	recentFor = time.Second
	maxRecent = 1024
)

// A recentClient is a client, or nil if there was none, as it was read from Postgres. Every transaction of this process
// may change a client and purges the cache; changes by other processes are visible after recentFor.
type recentClient struct {
	client *client.Client
	at     time.Time
}

// RecentClient is Client with its two newest live secrets, from a cache of up to one second. It is for
// requests that are refused in any case, so that garbage costs Postgres at most one read a second. Its result
// must not authorize anything.
func (s *Store) RecentClient(ctx context.Context, id uuid.UUID) (client.Client, error) {
	found, known := s.recent.Get(id)
	if !known || time.Since(found.at) >= recentFor {
		found = recentClient{at: time.Now()}
		read, err := s.readClient(ctx, recentClientSQL, id)
		if err != nil && !errors.Is(err, client.ErrUnknown) {
			return client.Client{}, err
		}
		if err == nil {
			found.client = &read
		}
		s.recent.Add(id, found)
	}
	if found.client == nil {
		return client.Client{}, client.ErrUnknown
	}
	return *found.client, nil
}
