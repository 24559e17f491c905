package localstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

const superuser = "almoner"

// Postgres is a PostgreSQL server that this program started. Its process is the parent of the backends.
type Postgres struct {
	child.Server
	URL string // of the superuser, to the database postgres

	options  Options
	programs programs
	account  *syscall.Credential
	port     int
}

// fastShutdown is the signal after which sessions are terminated and committed data is on disk.
const fastShutdown = syscall.SIGINT

// StartPostgres starts the server with its data in options.Dir, which it creates at the first start. It
// returns when the server answers. Errors: ErrMissing, data of another major version, an unreachable
// directory, or the last message of the server.
func StartPostgres(ctx context.Context, options Options) (*Postgres, error) {
	p := &Postgres{Server: child.Server{StopSignal: fastShutdown}, options: options}
	var err error
	if p.account, err = serverAccount(); err != nil {
		return nil, err
	}
	if err := settle(options.Dir, p.account); err != nil {
		return nil, fmt.Errorf("PostgreSQL's directory: %w", err)
	}
	if err := p.choosePrograms(); err != nil {
		return nil, err
	}
	if options.primary != nil {
		if err := p.copyFrom(ctx, options.primary); err != nil {
			return nil, err
		}
	}
	password, err := keptSecret(filepath.Join(options.Dir, "superuser"))
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL's password: %w", err)
	}
	if err := p.initialise(ctx); err != nil {
		return nil, err
	}
	if err := onFreePort(func(port int) error { p.port = port; return p.start(ctx) }); err != nil {
		return nil, err
	}
	p.URL = (&url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, password),
		Host:     fmt.Sprintf("127.0.0.1:%d", p.port),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}).String()
	return p, nil
}

func (p *Postgres) data() string { return filepath.Join(p.options.Dir, "data") }
func (p *Postgres) log() string  { return filepath.Join(p.options.Dir, "postgres.log") }

func (p *Postgres) choosePrograms() error {
	major, err := dataVersion(p.data())
	if err != nil {
		return fmt.Errorf("PostgreSQL's data: %w", err)
	}
	if p.options.programs != nil {
		p.programs = *p.options.programs
		return nil
	}
	p.programs, err = findPostgres(p.options.Tools, major)
	if errors.Is(err, ErrMissing) && major != 0 {
		return fmt.Errorf("the data in %s was created by PostgreSQL %d, which is not installed: "+
			"install postgresql-%[2]d, or move the directory away to start over", p.data(), major)
	}
	return err
}

// initialise makes the data directory in a temporary place and renames it when it is complete.
func (p *Postgres) initialise(ctx context.Context) error {
	if major, err := dataVersion(p.data()); err != nil || major != 0 {
		return err
	}
	unfinished := p.data() + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := handOver(p.options.Dir, p.account); err != nil {
		return err
	}
	err := child.Run(ctx, p.tool("initdb", "--pgdata="+unfinished, "--username="+superuser,
		"--pwfile="+filepath.Join(p.options.Dir, "superuser"), "--auth=scram-sha-256", "--encoding=UTF8",
		"--locale=C.UTF-8", "--no-sync", "--no-instructions"))
	if err == nil {
		err = os.Rename(unfinished, p.data())
	}
	if err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	return nil
}

func (p *Postgres) start(ctx context.Context) error {
	if err := p.clearStalePID(ctx); err != nil {
		return err
	}
	spec := p.tool("postgres", p.arguments()...)
	spec.Name = "PostgreSQL"
	spec.OnParentDeath = syscall.SIGQUIT // immediate shutdown, which also ends the backends
	if err := child.Launch(ctx, &p.Server, spec, p.isReady); err != nil {
		if process := p.Current(); process != nil {
			process.Stop(syscall.SIGQUIT, stopWithin)
		}
		return whyNotStarted(spec.Name, p.log(), err)
	}
	return nil
}

func (p *Postgres) arguments() []string {
	settings := []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(p.port), "unix_socket_directories=",
		"logging_collector=off", "log_destination=stderr", "max_connections=200",
		"jit=off", // our queries are short: compiling them costs more than running them
	}
	if p.options.Volatile {
		settings = append(settings, "shared_buffers=64MB", "fsync=off", "full_page_writes=off", "max_wal_size=4GB",
			"autovacuum_naptime=1h")
	}
	arguments := []string{"-D", p.data()}
	for _, setting := range slices.Concat(settings, p.options.Settings) {
		arguments = append(arguments, "-c", setting)
	}
	return arguments
}

// clearStalePID cleans up after a server that died: its lock file, and sessions that outlive it. PostgreSQL
// refuses to start if the process id in its lock file belongs to any process of the same user, and while any
// session uses the old shared memory.
func (p *Postgres) clearStalePID(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	path := filepath.Join(p.data(), "postmaster.pid")
	if lines := readLines(path); len(lines) > 0 {
		pid, err := strconv.Atoi(lines[0])
		// The working directory of a postmaster is its data directory.
		if err == nil && slices.Contains(child.WorkingIn(p.data()), pid) && !child.WaitGone(ctx, pid) {
			return fmt.Errorf("another PostgreSQL (process %d) uses %s: stop it first", pid, p.data())
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	// Kill the sessions of a server that is gone. Most end by themselves, but a session that waits for a lock in shared
	// memory whose holder was killed waits forever. The title of a session begins with "postgres: ". A server that is
	// starting has another title and must not be ended.
	return p.end(ctx, func(title string) bool { return strings.HasPrefix(title, "postgres: ") })
}

// end kills the processes that work in the data directory and whose title matches.
func (p *Postgres) end(ctx context.Context, matches func(title string) bool) error {
	for _, pid := range child.WorkingIn(p.data()) {
		title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !matches(string(title)) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end process %d of an earlier PostgreSQL: %w", pid, err)
		}
		if !child.WaitGone(ctx, pid) {
			return fmt.Errorf("process %d of an earlier PostgreSQL does not end: %w", pid, ctx.Err())
		}
	}
	return nil
}

// errNotReady means that the lock file does not say "ready".
var errNotReady = errors.New("it does not accept connections")

// isReady reads the lock file: its eighth line is "ready" when the server accepts connections (pg_ctl does the same).
func (p *Postgres) isReady(process *child.Child) error {
	lines := readLines(filepath.Join(p.data(), "postmaster.pid"))
	if len(lines) >= 8 && lines[0] == strconv.Itoa(process.PID()) && lines[7] == "ready" {
		return nil
	}
	return errNotReady
}

func readLines(path string) []string {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// Kill ends the server and its backends with SIGKILL, like a crash.
func (p *Postgres) Kill() {
	p.Server.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	// A session that was just forked has no title of its own yet. Restart reports sessions that cannot be ended.
	_ = p.end(ctx, func(string) bool { return true })
}

// Restart starts the server again at the same address, after Stop or Kill, or in place of the running one.
func (p *Postgres) Restart(ctx context.Context) error {
	p.Stop()
	return p.start(ctx)
}

// StartReplica starts a server that streams from the primary, with its data in options.Dir, which must be empty. It
// has the primary's version and superuser.
func StartReplica(ctx context.Context, primary *Postgres, options Options) (*Postgres, error) {
	options.primary, options.programs = primary, &primary.programs
	return StartPostgres(ctx, options)
}

// Promote promotes a replica, and returns when the replica accepts writes.
func (p *Postgres) Promote(ctx context.Context) error {
	return child.Run(ctx, p.tool("pg_ctl", "promote", "--pgdata="+p.data(), "--wait"))
}

// Follow replaces the server's data with a copy of the primary's data and starts the server as a replica, at the same
// address.
func (p *Postgres) Follow(ctx context.Context, primary *Postgres) error {
	p.Stop()
	if err := p.copyFrom(ctx, primary); err != nil {
		return err
	}
	return p.start(ctx)
}

// copyFrom replaces the server's data with a copy for a replica of the primary.
func (p *Postgres) copyFrom(ctx context.Context, primary *Postgres) error {
	password, err := os.ReadFile(filepath.Join(primary.options.Dir, "superuser"))
	if err != nil {
		return fmt.Errorf("PostgreSQL's password: %w", err)
	}
	if err := WriteWhole(filepath.Join(p.options.Dir, "superuser"), string(password)); err != nil {
		return fmt.Errorf("PostgreSQL's password: %w", err)
	}
	if err := os.RemoveAll(p.data()); err != nil {
		return err
	}
	backup := p.tool("pg_basebackup", "--pgdata="+p.data(),
		fmt.Sprintf("--dbname=host=127.0.0.1 port=%d user=%s sslmode=disable", primary.port, superuser),
		"--checkpoint=fast", "--write-recovery-conf", "--no-sync")
	backup.Env = append(backup.Env, "PGPASSWORD="+strings.TrimSpace(string(password)))
	return child.Run(ctx, backup)
}

// tool returns the command that runs a program of the server's version as the server's user.
func (p *Postgres) tool(name string, arguments ...string) child.Spec {
	return child.Spec{
		Name: name,
		Path: p.programs.path(name),
		Args: arguments,
		Dir:  p.options.Dir,
		Env:  environment(p.programs.libraries),
		Log:  p.log(),
		User: p.account,
	}
}

// ErrNoCitus reports that no installed PostgreSQL has the extension citus.
var ErrNoCitus = errors.New("no PostgreSQL with the extension citus is installed: install a package such as " +
	"postgresql-16-citus-13.0 (https://packages.citusdata.com), or build it (deploy/citus/README.md), and put the " +
	"directory of that PostgreSQL's programs first in PATH")

// Citus is a Citus cluster that this program started: the coordinator and its workers.
type Citus struct {
	Nodes []*Postgres // the first one is the coordinator
}

// StartCitus starts a coordinator and workers below options.Dir. If it fails, it stops the started nodes. It returns
// ErrNoCitus or an error of StartPostgres.
func StartCitus(ctx context.Context, options Options, workers int) (*Citus, error) {
	found, err := findCitus()
	if err != nil {
		return nil, err
	}
	// Nodes connect to each other as the services' roles, but do not know their passwords.
	trust := filepath.Join(options.Dir, "trust.conf")
	if err := os.MkdirAll(options.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(trust, []byte("host all,replication all 127.0.0.1/32 trust\n"), 0o644); err != nil {
		return nil, err
	}
	options.programs = &found
	options.Settings = []string{
		"shared_preload_libraries=citus,pg_stat_statements", "pg_stat_statements.track=all",
		"wal_level=logical", "max_prepared_transactions=400", "hba_file=" + trust,
		"citus.shard_count=8", "citus.node_conninfo=sslmode=disable", "max_worker_processes=32",
	}
	if found.hasSetting("output_plugin_libraries") {
		options.Settings = append(options.Settings, "output_plugin_libraries=pgoutput, test_decoding, citus")
	}
	c := &Citus{}
	dir := options.Dir
	for i := range 1 + workers {
		options.Dir = filepath.Join(dir, strconv.Itoa(i))
		node, err := StartPostgres(ctx, options)
		if err != nil {
			c.Stop()
			return nil, err
		}
		c.Nodes = append(c.Nodes, node)
	}
	return c, nil
}

// Stop stops every node.
func (c *Citus) Stop() {
	for _, node := range c.Nodes {
		node.Stop()
	}
}

// hasSetting reports whether this version of PostgreSQL has a setting.
func (p programs) hasSetting(name string) bool {
	command := exec.Command(p.path("postgres"), "--describe-config")
	command.Env = environment(p.libraries)
	out, err := command.Output()
	return err == nil && strings.Contains("\n"+string(out), "\n"+name+"\t")
}

// findCitus returns the programs of a PostgreSQL that has Citus, preferring those in PATH.
func findCitus() (programs, error) {
	candidates := installed("postgres", "", "/usr/lib/postgresql/*/bin/postgres")
	slices.Reverse(candidates)
	for _, candidate := range candidates {
		share, err := exec.Command(candidate.path("pg_config"), "--sharedir").Output()
		if err != nil {
			continue
		}
		_, err = os.Stat(filepath.Join(strings.TrimSpace(string(share)), "extension", "citus.control"))
		if err == nil && candidate.major >= oldestPostgres {
			return candidate, nil
		}
	}
	return programs{}, ErrNoCitus
}
