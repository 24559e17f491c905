package localstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

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

	programs programs
	account  *syscall.Credential
	password string
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
	var err error
	if r.programs, err = findRedis(options.Tools); err != nil {
		return err
	}
	if r.account, err = serverAccount(); err != nil {
		return err
	}
	if err := settle(options.Dir, r.account); err != nil {
		return fmt.Errorf("the directory of Redis: %w", err)
	}
	if r.password, err = keptSecret(filepath.Join(options.Dir, "password")); err != nil {
		return fmt.Errorf("the password of Redis: %w", err)
	}
	sentinelPassword, err := keptSecret(filepath.Join(options.Dir, "sentinelpassword"))
	if err != nil {
		return fmt.Errorf("the password of the Sentinels: %w", err)
	}
	if err := r.startNodes(ctx, options); err != nil {
		return err
	}
	if err := r.startSentinels(ctx, options.Dir, sentinelPassword); err != nil {
		return err
	}
	query := url.Values{"master_name": {masterName}, "password": {r.password}}
	for _, sentinel := range r.Sentinels[1:] {
		query.Add("addr", sentinel.address())
	}
	r.URL = (&url.URL{
		Scheme:   "redis",
		User:     url.UserPassword("", sentinelPassword),
		Host:     r.Sentinels[0].address(),
		Path:     "/0",
		RawQuery: query.Encode(),
	}).String()
	return r.waitForEachOther(ctx)
}

func (r *RedisSentinel) startNodes(ctx context.Context, options Options) error {
	for i := range sentinelNodes {
		further := []string{"masterauth " + r.password, "repl-diskless-sync-delay 0"}
		if i > 0 {
			further = append(further, fmt.Sprintf("replicaof 127.0.0.1 %d", r.Nodes[0].port))
		}
		node := &Redis{
			Dir:      filepath.Join(options.Dir, strconv.Itoa(i+1)),
			programs: r.programs,
			account:  r.account,
			password: r.password,
			volatile: options.Volatile,
			further:  further,
		}
		if err := startOneOf(ctx, node); err != nil {
			return err
		}
		node.URL = (&url.URL{
			Scheme: "redis",
			User:   url.UserPassword("", r.password),
			Host:   node.address(),
			Path:   "/0",
		}).String()
		r.Nodes = append(r.Nodes, node)
	}
	return nil
}

func (r *RedisSentinel) startSentinels(ctx context.Context, dir string, sentinelPassword string) error {
	for i := range sentinels {
		sentinel := &Redis{
			Dir:      filepath.Join(dir, fmt.Sprint("sentinel", i+1)),
			programs: r.programs,
			account:  r.account,
			password: sentinelPassword,
			mode:     []string{"--sentinel"},
			further: []string{
				fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", masterName, r.Nodes[0].port, sentinelQuorum),
				"sentinel auth-pass " + masterName + " " + r.password,
				"sentinel sentinel-pass " + sentinelPassword,
				"sentinel down-after-milliseconds " + masterName + " 2000",
				"sentinel failover-timeout " + masterName + " 3000",
			},
		}
		if err := startOneOf(ctx, sentinel); err != nil {
			return err
		}
		sentinel.URL = (&url.URL{
			Scheme: "redis",
			User:   url.UserPassword("", sentinelPassword),
			Host:   sentinel.address(),
		}).String()
		r.Sentinels = append(r.Sentinels, sentinel)
	}
	return nil
}

// startOneOf starts a server whose configuration the Sentinels change later.
func startOneOf(ctx context.Context, server *Redis) error {
	if err := settle(server.Dir, server.account); err != nil {
		return fmt.Errorf("the directory of Redis: %w", err)
	}
	err := onFreePort(ctx, func(ctx context.Context, port int) error { server.port = port; return server.start(ctx) })
	if err != nil {
		return err
	}
	server.settled = true
	return nil
}

func (r *RedisSentinel) waitForEachOther(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		well := 0
		for _, sentinel := range r.Sentinels {
			info, err := sentinel.info("sentinel")
			if err == nil &&
				strings.Contains(info, fmt.Sprintf(",slaves=%d,sentinels=%d", sentinelNodes-1, sentinels)) {
				well++
			}
		}
		// The first node is not a replica, unless the machine was so slow that the Sentinels replaced it.
		for _, replica := range r.Nodes {
			if info, err := replica.info("replication"); err == nil && strings.Contains(info, "master_link_status:up") {
				well++
			}
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
			if info, err := sentinel.info("sentinel"); err == nil &&
				strings.Contains(info, "address="+node.address()+",") {
				named++
			}
		}
		if info, err := node.info("replication"); named >= sentinelQuorum && err == nil &&
			strings.Contains(info, "role:master") {
			return node
		}
	}
	return nil
}

// info returns a section of the server's INFO.
func (r *Redis) info(section string) (string, error) {
	connection, err := net.DialTimeout("tcp", r.address(), time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(connection, "AUTH %s\r\nINFO %s\r\n", r.password, section); err != nil {
		return "", err
	}
	var length int64
	lines := bufio.NewReader(connection)
	if _, err := fmt.Fscanf(lines, "+OK\r\n$%d\r\n", &length); err != nil {
		return "", fmt.Errorf("INFO of Redis: %w", err)
	}
	info, err := io.ReadAll(io.LimitReader(lines, length))
	return string(info), err
}

// Stop stops every server, the Sentinels first: otherwise they would start a failover.
func (r *RedisSentinel) Stop() {
	for _, server := range append(append([]*Redis(nil), r.Sentinels...), r.Nodes...) {
		if server.current() != nil {
			server.Stop()
		}
	}
}
