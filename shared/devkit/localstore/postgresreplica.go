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

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

// StartReplica starts a server that streams from the primary, with its data in options.Dir, which must be empty. It
// has the primary's version and superuser.
func StartReplica(ctx context.Context, primary *Postgres, options Options) (*Postgres, error) {
	p := &Postgres{
		Server:   child.Server{StopSignal: fastShutdown},
		options:  options,
		programs: primary.programs,
		account:  primary.account,
	}
	if err := settle(options.Dir, p.account); err != nil {
		return nil, fmt.Errorf("PostgreSQL's directory: %w", err)
	}
	if err := p.copyFrom(ctx, primary); err != nil {
		return nil, err
	}
	if err := p.startOnFreePort(ctx); err != nil {
		return nil, err
	}
	address, err := url.Parse(primary.URL)
	if err != nil {
		return nil, err
	}
	address.Host = fmt.Sprintf("127.0.0.1:%d", p.port)
	p.URL = address.String()
	return p, nil
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
	if err := writeWhole(filepath.Join(p.options.Dir, "superuser"), string(password)); err != nil {
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
	candidates := installed([]string{"/usr/lib/postgresql/*/bin/postgres"}, "postgres", "")
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
