package localstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

// Redis is a Redis server that this program started.
type Redis struct {
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

	mu     sync.Mutex
	server *child.Child
}

// StartRedis starts the server with its data in options.Dir: with an append-only file, synced every second
// unless options.Volatile is set, and without eviction, as the grant store requires. It returns when the server
// answers. Errors: ErrMissing, an unreachable directory, or the last message of the server.
func StartRedis(ctx context.Context, options Options) (*Redis, error) {
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
	err = onFreePort(ctx, func(ctx context.Context, port int) error { r.port = port; return r.start(ctx) })
	if err != nil {
		return nil, err
	}
	r.URL = (&url.URL{Scheme: "redis", User: url.UserPassword("", r.password), Host: r.address(), Path: "/0"}).String()
	return r, nil
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
		if err := writeWhole(configuration, r.configuration()); err != nil {
			return fmt.Errorf("configure Redis: %w", err)
		}
	}
	if err := handOver(r.Dir, r.account); err != nil {
		return fmt.Errorf("configure Redis: %w", err)
	}
	server, err := child.Start(child.Spec{
		Name: "Redis",
		Path: r.programs.path("redis-server"),
		Args: append([]string{configuration}, r.mode...),
		Dir:  r.Dir,
		Env:  environment(r.programs.libraries),
		Log:  r.log(),
		User: r.account,
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.server = server
	r.mu.Unlock()
	if err := r.waitReady(ctx, server); err != nil {
		server.Stop(syscall.SIGTERM, stopWithin)
		return err
	}
	return nil
}

func (r *Redis) waitReady(ctx context.Context, server *child.Child) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		if r.ping() == nil {
			return nil
		}
		select {
		case <-server.Done():
			if lines := readLines(r.log()); strings.Contains(
				strings.Join(lines[max(0, len(lines)-4):], "\n"),
				"Address already in use",
			) {
				return fmt.Errorf("Redis: %w", errPortTaken)
			}
			return fmt.Errorf("%s; its log is %s", server.Outcome(), r.log())
		case <-ctx.Done():
			return fmt.Errorf("Redis does not respond; its log is %s: %w", r.log(), ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ping reports whether our server answers: another program on the same port would not accept the password.
func (r *Redis) ping() error {
	connection, err := net.DialTimeout("tcp", r.address(), time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(connection, "AUTH %s\r\nPING\r\n", r.password); err != nil {
		return err
	}
	lines := bufio.NewReader(connection)
	for _, want := range []string{"+OK", "+PONG"} {
		if line, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(line) != want {
			return errors.Join(errors.New("not ready"), err)
		}
	}
	return nil
}

func (r *Redis) current() *child.Child {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server
}

// PID returns the current process.
func (r *Redis) PID() int { return r.current().PID() }

// Done is closed when the current server has ended.
func (r *Redis) Done() <-chan struct{} { return r.current().Done() }

// Outcome describes in one line how the server ended. Call it after Done.
func (r *Redis) Outcome() string { return r.current().Outcome() }

// Stop shuts the server down; its data stays in the append-only file.
func (r *Redis) Stop() { r.current().Stop(syscall.SIGTERM, stopWithin) }

// Kill ends the server with SIGKILL, like a crash.
func (r *Redis) Kill() { r.current().Kill() }

// Pause stops the server (SIGSTOP): connections stay open without an answer.
func (r *Redis) Pause() error { return r.current().Pause() }

// Resume continues a paused server.
func (r *Redis) Resume() { r.current().Resume() }

// Restart starts the server again at the same address, after Stop or Kill, or in place of the running one.
func (r *Redis) Restart(ctx context.Context) error {
	r.Stop()
	return r.start(ctx)
}

// Forget removes all data of the server, like the loss of its disk. Call it between Stop or Kill and Restart.
func (r *Redis) Forget() error { return os.RemoveAll(filepath.Join(r.Dir, "appendonlydir")) }
