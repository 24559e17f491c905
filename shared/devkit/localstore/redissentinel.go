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

// The fewest that survive the loss of a machine: two Sentinels out of three agree that the master is gone, and one of
// two replicas follows it.
const (
	sentinelNodes  = 3
	sentinels      = 3
	sentinelQuorum = 2
)

// masterName is how the Sentinels call the master.
const masterName = "almoner"

// RedisSentinel is a Redis with replicas and with Sentinels that watch over it, which this program started.
type RedisSentinel struct {
	URL       string   // by the Sentinels (package redisurl)
	Nodes     []*Redis // the first one begins as the master
	Sentinels []*Redis // each speaks a part of Redis' protocol, with a password of its own
	Dir       string   // where the servers' own are

	programs programs
	account  *syscall.Credential
	password string
}

// StartRedisSentinel starts a master, two replicas and three Sentinels, below options.Dir. It returns when the replicas
// follow and the Sentinels know each other. After an error those that were started are stopped. Errors: those of
// StartRedis; the end of ctx.
func StartRedisSentinel(ctx context.Context, options Options) (*RedisSentinel, error) {
	s := &RedisSentinel{Dir: options.Dir}
	if err := s.start(ctx, options); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *RedisSentinel) start(ctx context.Context, options Options) error {
	var err error
	if s.programs, err = findRedis(options.Tools); err != nil {
		return err
	}
	if s.account, err = serverAccount(); err != nil {
		return err
	}
	if err := settle(options.Dir, s.account); err != nil {
		return fmt.Errorf("the directory of Redis: %w", err)
	}
	if s.password, err = keptSecret(filepath.Join(options.Dir, "password")); err != nil {
		return fmt.Errorf("the password of Redis: %w", err)
	}
	sentinelPassword, err := keptSecret(filepath.Join(options.Dir, "sentinelpassword"))
	if err != nil {
		return fmt.Errorf("the password of the Sentinels: %w", err)
	}
	if err := s.startNodes(ctx, options.Dir); err != nil {
		return err
	}
	if err := s.startSentinels(ctx, options.Dir, sentinelPassword); err != nil {
		return err
	}
	query := url.Values{"master_name": {masterName}, "password": {s.password}}
	for _, sentinel := range s.Sentinels[1:] {
		query.Add("addr", sentinel.address())
	}
	s.URL = (&url.URL{
		Scheme:   "redis",
		User:     url.UserPassword("", sentinelPassword),
		Host:     s.Sentinels[0].address(),
		Path:     "/0",
		RawQuery: query.Encode(),
	}).String()
	return s.waitForEachOther(ctx)
}

func (s *RedisSentinel) startNodes(ctx context.Context, dir string) error {
	for i := range sentinelNodes {
		further := []string{"masterauth " + s.password, "repl-diskless-sync-delay 0"}
		if i > 0 {
			further = append(further, fmt.Sprintf("replicaof 127.0.0.1 %d", s.Nodes[0].port))
		}
		node := &Redis{
			Dir:      filepath.Join(dir, strconv.Itoa(i+1)),
			programs: s.programs,
			account:  s.account,
			password: s.password,
			further:  further,
		}
		if err := startOneOf(ctx, node); err != nil {
			return err
		}
		node.URL = (&url.URL{
			Scheme: "redis",
			User:   url.UserPassword("", s.password),
			Host:   node.address(),
			Path:   "/0",
		}).String()
		s.Nodes = append(s.Nodes, node)
	}
	return nil
}

func (s *RedisSentinel) startSentinels(ctx context.Context, dir string, sentinelPassword string) error {
	for i := range sentinels {
		sentinel := &Redis{
			Dir: filepath.Join(
				dir,
				fmt.Sprint("sentinel", i+1),
			),
			programs: s.programs,
			account:  s.account,
			password: sentinelPassword,
			mode:     []string{"--sentinel"},
			further: []string{
				fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", masterName, s.Nodes[0].port, sentinelQuorum),
				"sentinel auth-pass " + masterName + " " + s.password,
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
		s.Sentinels = append(s.Sentinels, sentinel)
	}
	return nil
}

// startOneOf starts a server whose configuration Sentinel changes later: whom it follows, and what the Sentinels know
// of each other.
func startOneOf(ctx context.Context, server *Redis) error {
	if err := settle(server.Dir, server.account); err != nil {
		return fmt.Errorf("the directory of Redis: %w", err)
	}
	if err := onFreePort(ctx, func(ctx context.Context, port int) error { server.port = port; return server.start(ctx) }); err != nil {
		return err
	}
	server.settled = true
	return nil
}

func (s *RedisSentinel) waitForEachOther(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		well := 0
		for _, sentinel := range s.Sentinels {
			said, err := sentinel.info("sentinel")
			if err == nil &&
				strings.Contains(said, fmt.Sprintf(",slaves=%d,sentinels=%d", sentinelNodes-1, sentinels)) {
				well++
			}
		}
		// not the first one, unless this machine was so slow that it was taken for dead
		for _, replica := range s.Nodes {
			if said, err := replica.info("replication"); err == nil && strings.Contains(said, "master_link_status:up") {
				well++
			}
		}
		if well == sentinels+sentinelNodes-1 && s.Master() != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the Sentinels do not find each other: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Master is the node that the Sentinels name and that takes writes; nil while there is none. One that comes back may
// call itself the master, too, until it is told otherwise.
func (s *RedisSentinel) Master() *Redis {
	for _, node := range s.Nodes {
		named := 0
		for _, sentinel := range s.Sentinels {
			if said, err := sentinel.info("sentinel"); err == nil &&
				strings.Contains(said, "address="+node.address()+",") {
				named++
			}
		}
		if said, err := node.info("replication"); named >= sentinelQuorum && err == nil &&
			strings.Contains(said, "role:master") {
			return node
		}
	}
	return nil
}

// info is the section of the server's INFO.
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
	said, err := io.ReadAll(io.LimitReader(lines, length))
	return string(said), err
}

// Stop ends every server, the Sentinels first: they would find a new master for what ends.
func (s *RedisSentinel) Stop() {
	for _, server := range append(append([]*Redis(nil), s.Sentinels...), s.Nodes...) {
		if server.current() != nil {
			server.Stop()
		}
	}
}
