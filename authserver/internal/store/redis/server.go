package redis

import (
	"context"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// A server is what is known of one Redis server: the time of its clock and whether it answers.
type server struct {
	clock  clock
	health healthGate
}

// servers holds the servers of one client by address. The zero value is ready to use.
type servers struct {
	mu  sync.Mutex
	all map[string]*server
}

// of returns the server of key: in a cluster, the master of its slot.
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
