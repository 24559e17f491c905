package postgres

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/database/pg"
)

// The nodes of workspaces that are remembered, and for how long. Any node runs the statements of any workspace, so an
// old entry only costs a detour.
const (
	maxPlaced  = 10_000
	placedTime = time.Minute
)

// nodes are the nodes of a distributed Postgres that Sources.Refreshes names.
type nodes struct {
	pools  map[string]*pgxpool.Pool // by host and port
	placed *expirable.LRU[uuid.UUID, string]
}

// openNodes makes a pool for each host of the URL if it has several.
func openNodes(ctx context.Context, source credential.Source, options pg.Options) (n nodes, err error) {
	n.placed = expirable.NewLRU[uuid.UUID, string](maxPlaced, nil, placedTime)
	n.pools = map[string]*pgxpool.Pool{}
	parsed, err := url.Parse(source().Reveal())
	if err != nil || !strings.Contains(parsed.Host, ",") {
		return n, nil
	}
	for host := range strings.SplitSeq(parsed.Host, ",") {
		one := func() credential.Secret {
			present, err := url.Parse(source().Reveal())
			if err != nil {
				return ""
			}
			present.Host = host
			return credential.Secret(present.String())
		}
		if n.pools[host], err = pg.Open(ctx, one, options); err != nil {
			n.close()
			return n, err
		}
	}
	return n, nil
}

func (n nodes) close() {
	for _, pool := range n.pools {
		if pool != nil {
			pool.Close()
		}
	}
}

// nodeSQL selects the node that has the grants of a workspace.
const nodeSQL = `select n.nodename || ':' || n.nodeport from pg_dist_placement p join pg_dist_node n using (groupid)
	where p.shardid = get_shard_id_for_distribution_column('account.grants', $1::uuid)`

// refreshesOf returns the pool of the node that has the grants of a workspace, or d.refreshes if Sources.Refreshes does
// not name it. Another node would pass the statement on, and not keep its plan.
func (d *db) refreshesOf(ctx context.Context, workspaceID uuid.UUID) *pgxpool.Pool {
	if len(d.nodes.pools) == 0 || !d.distributed.Load() {
		return d.refreshes
	}
	node, known := d.nodes.placed.Get(workspaceID)
	if !known && d.refreshes.QueryRow(ctx, nodeSQL, workspaceID).Scan(&node) == nil {
		d.nodes.placed.Add(workspaceID, node)
	}
	return cmp.Or(d.nodes.pools[node], d.refreshes)
}
