package localstore

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

// StartReplica starts a server that streams from the primary, with its data in options.Dir, which must be empty. It
// has the primary's version and superuser.
func StartReplica(ctx context.Context, primary *Postgres, options Options) (*Postgres, error) {
	p := &Postgres{options: options, programs: primary.programs, account: primary.account}
	if err := settle(options.Dir, p.account); err != nil {
		return nil, fmt.Errorf("PostgreSQL's directory: %w", err)
	}
	if err := p.copyFrom(ctx, primary); err != nil {
		return nil, err
	}
	err := onFreePort(ctx, func(ctx context.Context, port int) error { p.port = port; return p.start(ctx) })
	if err != nil {
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
	return child.Run(ctx, p.tool("pg_ctl", nil, "promote", "--pgdata="+p.data(), "--wait"))
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
	return child.Run(
		ctx,
		p.tool(
			"pg_basebackup",
			[]string{"PGPASSWORD=" + strings.TrimSpace(string(password))},
			"--pgdata="+p.data(),
			fmt.Sprintf("--dbname=host=127.0.0.1 port=%d user=%s sslmode=disable", primary.port, superuser),
			"--checkpoint=fast",
			"--write-recovery-conf",
			"--no-sync",
		),
	)
}

// tool returns the command that runs a program of the server's version as the server's user.
func (p *Postgres) tool(name string, environ []string, arguments ...string) child.Spec {
	return child.Spec{
		Name: name,
		Path: p.programs.path(name),
		Args: arguments,
		Dir:  p.options.Dir,
		Env:  append(environment(p.programs.libraries), environ...),
		Log:  p.log(),
		User: p.account,
	}
}
