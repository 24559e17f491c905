package postgres

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/database/pg"
)

// How many nodes of workspaces are remembered, unless they give no connection, and for how long. Any node runs all
// statements.
const (
	maxPlaced  = 100_000
	placedTime = time.Minute
)

// nodes are the nodes of a distributed Postgres that Sources.Refreshes names.
type nodes struct {
	pools  map[string]*pgxpool.Pool // by net.JoinHostPort
	placed *expirable.LRU[uuid.UUID, string]
}

// urlHosts matches the hosts of a URL, and what is before and after them. url.Parse refuses several IPv6 addresses.
var urlHosts = regexp.MustCompile(`^(\w+://(?:[^/?]*@)?)([^/?]*)(.*)$`)

// openNodes makes a pool for each host of the URL if it has several.
func openNodes(ctx context.Context, source credential.Source, options pg.Options) (n nodes, err error) {
	parts := urlHosts.FindStringSubmatch(source().Reveal())
	if parts == nil || !strings.Contains(parts[2], ",") {
		return n, nil
	}
	n.placed = expirable.NewLRU[uuid.UUID, string](maxPlaced, nil, placedTime)
	n.pools = map[string]*pgxpool.Pool{}
	for host := range strings.SplitSeq(parts[2], ",") {
		one := func() credential.Secret {
			return credential.Secret(urlHosts.ReplaceAllString(source().Reveal(), "${1}"+host+"${3}"))
		}
		named := &url.URL{Host: host}
		address := net.JoinHostPort(named.Hostname(), cmp.Or(named.Port(), "5432"))
		pool, err := pg.Open(ctx, one, options)
		if err != nil {
			return n, err
		}
		n.pools[address] = pool
	}
	return n, nil
}

// nodeSQL selects the node that has the grants of a workspace.
const nodeSQL = `select n.nodename, n.nodeport::text from pg_dist_placement p join pg_dist_node n using (groupid)
	where p.shardid = get_shard_id_for_distribution_column('account.grants', $1::uuid)
		and n.noderole = 'primary' and n.isactive`

// nodeOf returns the pool of the node that has the grants of a workspace, or nil if Sources.Refreshes does not name it.
// Another node would pass the statement on, and not keep its plan. The first node is asked: others may be out of date.
func (d *db) nodeOf(ctx context.Context, workspaceID uuid.UUID) *pgxpool.Pool {
	if d.nodes.placed == nil || !d.distributed.Load() {
		return nil
	}
	node, known := d.nodes.placed.Get(workspaceID)
	if !known {
		var name, port string // "" if they cannot be read
		_ = d.pool.QueryRow(ctx, nodeSQL, workspaceID).Scan(&name, &port)
		node = net.JoinHostPort(name, port)
		d.nodes.placed.Add(workspaceID, node)
	}
	return d.nodes.pools[node]
}

// acquire returns a connection for a step of a workspace. A refresh gets one to the node of its grant. If this node
// does not answer in half of the time, another may know where the grant is now.
func (s *stepBatcher) acquire(ctx context.Context, workspaceID uuid.UUID) (*pgxpool.Conn, error) {
	if s.pool != s.db.refreshes {
		return s.pool.Acquire(ctx)
	}
	half, stop := context.WithTimeout(ctx, s.limit/2)
	defer stop()
	if node := s.db.nodeOf(half, workspaceID); node != nil {
		if connection, err := node.Acquire(half); err == nil {
			return connection, nil
		}
		s.db.nodes.placed.Remove(workspaceID)
	}
	return s.pool.Acquire(ctx)
}
