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
