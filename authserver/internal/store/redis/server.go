package redis

import (
	"context"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// A server is what is known of one Redis server: what its clock shows, and whether it answers.
type server struct {
	clock clock
	pulse healthGate
}

// servers are those of one client, by their addresses. The zero value is ready.
type servers struct {
	mu  sync.Mutex
	all map[string]*server
}

// of is the server that keeps key: of a cluster, the master of its slot.
func (s *servers) of(ctx context.Context, rdb goredis.UniversalClient, key string) *server {
	address := ""
	if cluster, is := rdb.(*goredis.ClusterClient); is {
		if master, err := cluster.MasterForKey(ctx, key); err == nil {
			address = master.Options().Addr
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*server{}
	}
	one, known := s.all[address]
	if !known {
		one = new(server)
		s.all[address] = one
	}
	return one
}
