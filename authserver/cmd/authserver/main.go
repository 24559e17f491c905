// Command authserver is Almoner's authorization server: clients, login, consent, settings, tokens and grants.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/shared/envconf"
	"github.com/almonerhq/almoner/shared/heap"
	"github.com/almonerhq/almoner/shared/version"
	"github.com/almonerhq/almoner/shared/web"
)

type commands struct {
	Serve       serve         `cmd:"" help:"Serve until SIGTERM or SIGINT."`
	Migrate     migrate       `cmd:"" help:"Bring the database schema up to date. ALMONER_DATABASE_URL names the owner."`
	CheckConfig checkConfig   `cmd:"" help:"Say what is configured, secrets redacted, and every mistake in it."`
	Admin       adminCommands `cmd:"" help:"What an operator may do: workspaces, users, members, clients, keys, grants."`
	Doctor      doctorCommand `cmd:"" help:"Replay what a connector does against a running server, and say in words what is wrong."`
	Healthcheck healthcheck   `cmd:"" help:"Fail unless a serve of this machine says that it is ready; for container engines."`

	Version kong.VersionFlag `help:"Say which build this is."`
}

type serve struct{}

func (serve) Run(ctx context.Context) error {
	heap.Tune()
	config, log, err := load()
	if err != nil {
		return err
	}
	app.LogLibraries(log)
	a, err := app.New(ctx, config, log)
	if err != nil {
		return err
	}
	return a.Serve(ctx)
}

type migrate struct {
	Check bool `help:"Change nothing; fail if a migration is pending."`
}

func (m migrate) Run(ctx context.Context) error {
	return app.Migrate(ctx, os.Environ(), m.Check, os.Stdout)
}

type checkConfig struct{}

func (checkConfig) Run() error {
	config, _, err := load()
	if err != nil {
		return err
	}
	fmt.Print(envconf.Print(config))
	return nil
}

type healthcheck struct {
	Address string `arg:"" optional:"" env:"ALMONER_LISTEN" default:"127.0.0.1:8081" help:"Where it listens."`
}

func (h healthcheck) Run(ctx context.Context) error { return web.AskReady(ctx, h.Address) }

func load() (app.Config, *slog.Logger, error) {
	var config app.Config
	if err := envconf.Load(&config, os.Environ()); err != nil {
		return config, nil, err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(config.LogLevel)); err != nil {
		return config, nil, fmt.Errorf("ALMONER_LOG_LEVEL is debug, info, warn or error")
	}
	return config, web.NewLogger(os.Stderr, level), nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	parsed := kong.Parse(&commands{}, kong.Name("authserver"), kong.Description("Almoner's authorization server."),
		kong.Vars{"version": version.Line("authserver")}, kong.BindTo(ctx, (*context.Context)(nil)), kong.UsageOnError(), kong.Exit(func(status int) {
			if status != 0 {
				status = exitUsage // what was typed cannot be read
			}
			os.Exit(status)
		}))
	if err := parsed.Run(); err != nil {
		os.Exit(complain(err))
	}
}

// complain says what went wrong, and returns the status to exit with.
func complain(err error) int {
	status := exitFault
	if e, ok := errors.AsType[exit](err); ok {
		err, status = e.error, e.status
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "authserver:", err)
	}
	return status
}
