package localstore

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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
	of, err := newRedis(options)
	if err != nil {
		return err
	}
	arguments := []string{"create"}
	query := url.Values{}
	for i := range masters * (1 + replicas) {
		bus, err := FreePort()
		if err != nil {
			return err
		}
		node := of.member(strconv.Itoa(i+1), "cluster-enabled yes", "cluster-config-file nodes.conf",
			"cluster-node-timeout 1000", "cluster-port "+strconv.Itoa(bus), "masterauth "+of.password)
		if err := node.startOnFreePort(ctx); err != nil {
			return err
		}
		r.Nodes = append(r.Nodes, node)
		arguments = append(arguments, node.address())
		if i > 0 {
			query.Add("addr", node.address())
		}
	}
	r.URL = r.Nodes[0].url("", query)
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

// The minimum that survives the loss of a machine: two of three Sentinels agree that the master is gone, and
// one of two replicas takes over.
const (
	sentinelNodes  = 3
	sentinels      = 3
	sentinelQuorum = 2
)

// masterName is the name of the master in the Sentinels' configuration.
const masterName = "almoner"

// RedisSentinel is a Redis with replicas and Sentinels that this program started.
type RedisSentinel struct {
	URL       string   // with the Sentinels' addresses (package redisurl)
	Nodes     []*Redis // the first one starts as the master
	Sentinels []*Redis // with their own password; they support a part of Redis' protocol
	Dir       string   // holds the servers' directories
}

// StartRedisSentinel starts a master, two replicas and three Sentinels below options.Dir. It returns when the
// replicas are connected and the Sentinels know each other. After an error it stops the started servers.
// Errors: those of StartRedis, or the end of ctx.
func StartRedisSentinel(ctx context.Context, options Options) (*RedisSentinel, error) {
	s := &RedisSentinel{Dir: options.Dir}
	if err := s.start(ctx, options); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (r *RedisSentinel) start(ctx context.Context, options Options) error {
	of, err := newRedis(options)
	if err != nil {
		return err
	}
	sentinelPassword, err := keptSecret(filepath.Join(options.Dir, "sentinelpassword"))
	if err != nil {
		return fmt.Errorf("the password of the Sentinels: %w", err)
	}
	for i := range sentinelNodes {
		node := of.member(strconv.Itoa(i+1), "masterauth "+of.password, "repl-diskless-sync-delay 0")
		if i > 0 {
			node.further = append(node.further, fmt.Sprintf("replicaof 127.0.0.1 %d", r.Nodes[0].port))
		}
		r.Nodes = append(r.Nodes, node)
		if err := startSettled(ctx, node); err != nil {
			return err
		}
	}
	query := url.Values{"master_name": {masterName}, "password": {of.password}}
	for i := range sentinels {
		sentinel := of.member(fmt.Sprint("sentinel", i+1),
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", masterName, r.Nodes[0].port, sentinelQuorum),
			"sentinel auth-pass "+masterName+" "+of.password,
			"sentinel sentinel-pass "+sentinelPassword,
			"sentinel down-after-milliseconds "+masterName+" 2000",
			"sentinel failover-timeout "+masterName+" 3000")
		sentinel.mode, sentinel.password = []string{"--sentinel"}, sentinelPassword
		r.Sentinels = append(r.Sentinels, sentinel)
		if err := startSettled(ctx, sentinel); err != nil {
			return err
		}
		if i > 0 {
			query.Add("addr", sentinel.address())
		}
	}
	r.URL = r.Sentinels[0].url("/0", query)
	return r.waitForEachOther(ctx)
}

// startSettled starts a server whose configuration the Sentinels change later.
func startSettled(ctx context.Context, server *Redis) error {
	err := server.startOnFreePort(ctx)
	server.settled = err == nil
	return err
}

func (r *RedisSentinel) waitForEachOther(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	known := fmt.Sprintf(",slaves=%d,sentinels=%d", sentinelNodes-1, sentinels)
	for {
		well := 0
		for _, sentinel := range r.Sentinels {
			well += strings.Count(sentinel.info("sentinel"), known)
		}
		// The first node is not a replica, unless the machine was so slow that the Sentinels replaced it.
		for _, replica := range r.Nodes {
			well += strings.Count(replica.info("replication"), "master_link_status:up")
		}
		if well == sentinels+sentinelNodes-1 && r.Master() != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the Sentinels do not find each other: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Master returns the node that the Sentinels name and that accepts writes, or nil if there is none. A
// returning node may also report itself as master until the Sentinels reconfigure it.
func (r *RedisSentinel) Master() *Redis {
	for _, node := range r.Nodes {
		named := 0
		for _, sentinel := range r.Sentinels {
			if strings.Contains(sentinel.info("sentinel"), "address="+node.address()+",") {
				named++
			}
		}
		if named >= sentinelQuorum && strings.Contains(node.info("replication"), "role:master") {
			return node
		}
	}
	return nil
}

// Stop stops every server, the Sentinels first: otherwise they would start a failover.
func (r *RedisSentinel) Stop() {
	for _, server := range append(append([]*Redis(nil), r.Sentinels...), r.Nodes...) {
		server.Stop()
	}
}
