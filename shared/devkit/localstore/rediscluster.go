package localstore

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

// masters is the minimum of a cluster. With one replica each it survives the loss of a master.
const masters = 3

// RedisCluster is a Redis Cluster that this program started.
type RedisCluster struct {
	URL   string // with the address of every node
	Nodes []*Redis
	Dir   string // holds the nodes' directories
}

// StartRedisCluster starts the nodes below options.Dir and joins them. It returns when all slots are served.
// After an error it stops the started nodes. Errors: those of StartRedis, or the last message of redis-cli.
func StartRedisCluster(ctx context.Context, options Options) (*RedisCluster, error) {
	return startCluster(ctx, options, 1)
}

// StartRedisMasters is StartRedisCluster without replicas, for measurements.
func StartRedisMasters(ctx context.Context, options Options) (*RedisCluster, error) {
	return startCluster(ctx, options, 0)
}

func startCluster(ctx context.Context, options Options, replicas int) (*RedisCluster, error) {
	c := &RedisCluster{Dir: options.Dir}
	if err := c.start(ctx, options, replicas); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (r *RedisCluster) start(ctx context.Context, options Options, replicas int) error {
	programs, err := findRedis(options.Tools)
	if err != nil {
		return err
	}
	account, err := serverAccount()
	if err != nil {
		return err
	}
	if err := settle(options.Dir, account); err != nil {
		return fmt.Errorf("the directory of the Redis Cluster: %w", err)
	}
	password, err := keptSecret(filepath.Join(options.Dir, "password"))
	if err != nil {
		return fmt.Errorf("the password of the Redis Cluster: %w", err)
	}
	arguments := []string{"create"}
	query := url.Values{}
	for i := range masters * (1 + replicas) {
		node := &Redis{
			Dir:      filepath.Join(options.Dir, strconv.Itoa(i+1)),
			programs: programs,
			account:  account,
			password: password,
			volatile: options.Volatile,
		}
		if err := settle(node.Dir, account); err != nil {
			return fmt.Errorf("the directory of Redis: %w", err)
		}
		bus, err := FreePort()
		if err != nil {
			return err
		}
		node.further = []string{
			"cluster-enabled yes",
			"cluster-config-file nodes.conf",
			"cluster-node-timeout 1000",
			"cluster-port " + strconv.Itoa(bus),
			"masterauth " + password,
		}
		err = onFreePort(ctx, func(ctx context.Context, port int) error { node.port = port; return node.start(ctx) })
		if err != nil {
			return err
		}
		node.URL = (&url.URL{
			Scheme: "redis",
			User:   url.UserPassword("", password),
			Host:   node.address(),
			Path:   "/0",
		}).String()
		r.Nodes = append(r.Nodes, node)
		arguments = append(arguments, node.address())
		if i > 0 {
			query.Add("addr", node.address())
		}
	}
	r.URL = (&url.URL{
		Scheme:   "redis",
		User:     url.UserPassword("", password),
		Host:     r.Nodes[0].address(),
		RawQuery: query.Encode(),
	}).String()
	return r.Administer(ctx, append(arguments, "--cluster-replicas", strconv.Itoa(replicas))...)
}

// Administer runs redis-cli --cluster with the arguments, which begin with a command.
func (r *RedisCluster) Administer(ctx context.Context, arguments ...string) error {
	node := r.Nodes[0]
	return child.Run(ctx, child.Spec{
		Name: "redis-cli",
		Path: node.programs.path("redis-cli"),
		Args: append(append([]string{"--cluster"}, arguments...), "--cluster-yes"),
		Dir:  "/",
		Env:  append(environment(node.programs.libraries), "REDISCLI_AUTH="+node.password, "HOME="+os.TempDir()),
		Log:  filepath.Join(r.Dir, "redis-cli.log"),
	})
}

// Stop stops every node.
func (r *RedisCluster) Stop() {
	for _, node := range r.Nodes {
		node.Stop()
	}
}
