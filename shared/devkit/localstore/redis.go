package localstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

// Redis is a Redis server that this program started.
type Redis struct {
	child.Server
	URL string
	Dir string // where its files are: redis.conf, appendonlydir, redis.log

	account  *syscall.Credential
	programs programs
	port     int
	password string
	further  []string // lines of the configuration
	mode     []string // further arguments of the program
	settled  bool     // the server rewrites its configuration file itself
	volatile bool     // see Options.Volatile
}

// StartRedis starts the server with its data in options.Dir: with an append-only file, synced every second
// unless options.Volatile is set, and without eviction, as the grant store requires. It returns when the server
// answers. Errors: ErrMissing, an unreachable directory, or the last message of the server.
func StartRedis(ctx context.Context, options Options) (*Redis, error) {
	r, err := newRedis(options)
	if err != nil {
		return nil, err
	}
	if err := r.startOnFreePort(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// newRedis returns a server that has a directory and a password, and is not started yet.
func newRedis(options Options) (*Redis, error) {
	r := &Redis{Dir: options.Dir, volatile: options.Volatile}
	var err error
	if r.programs, err = findRedis(options.Tools); err != nil {
		return nil, err
	}
	if r.account, err = serverAccount(); err != nil {
		return nil, err
	}
	if err := settle(options.Dir, r.account); err != nil {
		return nil, fmt.Errorf("the directory of Redis: %w", err)
	}
	if r.password, err = keptSecret(filepath.Join(options.Dir, "password")); err != nil {
		return nil, fmt.Errorf("the password of Redis: %w", err)
	}
	return r, nil
}

// member returns a server that is not started yet, with a directory below this one and the same password.
func (r *Redis) member(name string, further ...string) *Redis {
	return &Redis{
		Dir:      filepath.Join(r.Dir, name),
		programs: r.programs,
		account:  r.account,
		password: r.password,
		volatile: r.volatile,
		further:  further,
	}
}

func (r *Redis) startOnFreePort(ctx context.Context) error {
	if err := settle(r.Dir, r.account); err != nil {
		return fmt.Errorf("the directory of Redis: %w", err)
	}
	if err := onFreePort(func(port int) error { r.port = port; return r.start(ctx) }); err != nil {
		return err
	}
	r.URL = r.url("/0", nil)
	return nil
}

// url returns the URL of the server with a path and a query.
func (r *Redis) url(path string, query url.Values) string {
	return (&url.URL{
		Scheme:   "redis",
		User:     url.UserPassword("", r.password),
		Host:     r.address(),
		Path:     path,
		RawQuery: query.Encode(),
	}).String()
}

func (r *Redis) address() string { return fmt.Sprintf("127.0.0.1:%d", r.port) }
func (r *Redis) log() string     { return filepath.Join(r.Dir, "redis.log") }

// configuration is written to a private file, because arguments are visible to every user of the machine.
func (r *Redis) configuration() string {
	// With everysec, Redis delays writes to its file for up to 2 s during a slow fsync, so acknowledged data can be
	// lost even if only the process dies. With no, Redis writes before each reply.
	sync := "everysec"
	if r.volatile {
		sync = "no"
	}
	return strings.Join(append([]string{
		"bind 127.0.0.1", fmt.Sprintf("port %d", r.port), "protected-mode yes", "requirepass " + r.password,
		"daemonize no", `dir "` + r.Dir + `"`, "appendonly yes", "appendfsync " + sync, `save ""`,
		"maxmemory-policy noeviction", "logfile \"\"",
	}, append(r.further, "")...), "\n")
}

func (r *Redis) start(ctx context.Context) error {
	configuration := filepath.Join(r.Dir, "redis.conf")
	if !r.settled {
		if err := WriteWhole(configuration, r.configuration()); err != nil {
			return fmt.Errorf("configure Redis: %w", err)
		}
	}
	if err := handOver(r.Dir, r.account); err != nil {
		return fmt.Errorf("configure Redis: %w", err)
	}
	err := child.Launch(ctx, &r.Server, child.Spec{
		Name: "Redis",
		Path: r.programs.path("redis-server"),
		Args: append([]string{configuration}, r.mode...),
		Dir:  r.Dir,
		Env:  environment(r.programs.libraries),
		Log:  r.log(),
		User: r.account,
	}, func(*child.Child) error { return r.ping() })
	if err != nil {
		r.Stop()
		return whyNotStarted("Redis", r.log(), err)
	}
	return nil
}

// Restart starts the server again at the same address, after Stop or Kill, or in place of the running one.
func (r *Redis) Restart(ctx context.Context) error {
	r.Stop()
	return r.start(ctx)
}

// Forget removes all data of the server, like the loss of its disk. Call it between Stop or Kill and Restart.
func (r *Redis) Forget() error { return os.RemoveAll(filepath.Join(r.Dir, "appendonlydir")) }

// ping reports whether our server answers: another program on the same port would not accept the password.
func (r *Redis) ping() error {
	_, err := ask(r.address(), r.password, "PING", time.Second)
	return err
}

// info returns a section of the server's INFO, or "" if the server does not answer.
func (r *Redis) info(section string) string {
	text, _ := ask(r.address(), r.password, "INFO "+section, time.Second)
	return text
}

// askWithin is how long a command may take on a busy machine.
const askWithin = 30 * time.Second

// AskRedis sends a command to the Redis of a URL and returns the reply: the text of a string or the line of another
// type. An error reply is an error.
func AskRedis(address, command string) (string, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the URL of Redis cannot be parsed") // it contains a password
	}
	password, _ := parsed.User.Password()
	return ask(parsed.Host, password, command, askWithin)
}

func ask(address, password, command string, within time.Duration) (string, error) {
	connection, err := net.DialTimeout("tcp", address, within)
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(connection, "AUTH %s\r\n%s\r\n", password, command); err != nil {
		return "", err
	}
	replies := bufio.NewReader(connection)
	if granted, err := replies.ReadString('\n'); err != nil || granted != "+OK\r\n" {
		return "", fmt.Errorf("redis to AUTH: %q %w", granted, err)
	}
	reply, err := replies.ReadString('\n')
	reply = strings.TrimSuffix(reply, "\r\n")
	if err != nil || strings.HasPrefix(reply, "-") {
		return "", fmt.Errorf("redis to %s: %q %w", command, reply, err)
	}
	length, isText := strings.CutPrefix(reply, "$")
	if !isText {
		return reply, nil
	}
	size, err := strconv.Atoi(length)
	if err != nil {
		return "", fmt.Errorf("redis to %s: %w", command, err)
	}
	text := make([]byte, max(0, size)) // -1 means that there is no string
	_, err = io.ReadFull(replies, text)
	return string(text), err
}

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
