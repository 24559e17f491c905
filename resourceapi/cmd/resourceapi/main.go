// Command resourceapi serves the workspace API's modules.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/config/redisurl"
	schema "github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/net/version"
	"github.com/almonerhq/almoner/shared/net/web"

	"github.com/almonerhq/almoner/resourceapi/internal/app"
)

type commands struct {
	Config string `placeholder:"FILE" help:"Settings file, with lines of NAME=value. The environment takes precedence. Same as ALMONER_CONFIG."`

	Serve     serve   `cmd:"" help:"Serve until SIGTERM or SIGINT."`
	Worker    work    `cmd:"" help:"Process submissions and send webhooks until SIGTERM or SIGINT, for serve with ALMONER_WORKER=false."`
	Migrate   migrate `cmd:"" help:"Migrate the database schema, after authserver migrate. Needs the owner of the database in ALMONER_DATABASE_URL."`
	Retention struct {
		Show retentionShow `cmd:"" help:"Show how long records are kept, and how many are due to be deleted."`
		Run  retentionRun  `cmd:"" help:"Delete the records that are due now. The service also does this every hour."`
	} `cmd:"" help:"Manage the deletion of records that are no longer needed."`
	Apply       apply       `cmd:"" help:"Create and change public forms from a YAML file. authserver admin apply reads the clients in the same file."`
	CheckConfig checkConfig `cmd:"" help:"Check the settings and print them without secrets."`
	Settings    settings    `cmd:"" help:"List the settings."`
	Healthcheck healthcheck `cmd:"" help:"Exit with 1 unless serve or worker on this machine is ready. For container engines."`

	Version kong.VersionFlag `help:"Print the version."`
}

type (
	serve       struct{}
	work        struct{}
	migrate     struct{ schema.Options }
	checkConfig struct {
		JSON bool `name:"json" help:"Write JSON, including mistakes and warnings."`
	}
	settings struct {
		JSON bool `name:"json" help:"Write JSON."`
	}
	retentionShow struct {
		JSON bool `name:"json" help:"Write JSON."`
	}
	retentionRun struct {
		DryRun bool `name:"dry-run" help:"Delete nothing: show what is due."`
		JSON   bool `name:"json" help:"Write JSON."`
	}
	apply struct {
		File   string `short:"f" required:"" placeholder:"FILE" help:"YAML file with a list named forms; - for standard input."`
		DryRun bool   `name:"dry-run" help:"Change nothing: show what would change."`
		JSON   bool   `name:"json" help:"Write JSON."`
	}
	healthcheck struct {
		Address string        `arg:"" optional:"" env:"ALMONER_LISTEN" default:"127.0.0.1:8082" help:"Address and port of the service."`
		Wait    time.Duration `default:"0s" help:"Keep checking for up to this long until the service is ready."`
	}
)

func (serve) Run() error { return run("listening", (*app.App).Run) }

func (work) Run() error { return run("listening for probes", (*app.App).Work) }

// run builds the service from the settings and runs it. It logs the address with a message.
func run(message string, run func(*app.App, context.Context, func(net.Addr)) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, reading, err := app.LoadConfig(os.Environ())
	if err != nil {
		return err
	}
	log := web.NewLogger(os.Stderr, slog.LevelInfo)
	slog.SetDefault(log) // used by Go's log package, and so by the libraries
	redisurl.LogTo(log)
	reading.Warn(log)
	service, err := app.New(ctx, config, log)
	if err != nil {
		return err
	}
	defer service.Close()
	return run(service, ctx, func(address net.Addr) { log.Info(message, "address", address.String()) })
}

func (m migrate) Run() error {
	return app.Migrate(context.Background(), os.Environ(), m.Options, os.Stdout)
}

func (s settings) Run() error {
	return envconf.PrintSettings(os.Stdout, envconf.Describe(app.Config{}), s.JSON)
}

func (c checkConfig) Run() error {
	_, reading, err := app.LoadConfig(os.Environ())
	return errors.Join(err, reading.Print(os.Stdout, c.JSON))
}

func (r retentionShow) Run() error {
	return app.Retention(context.Background(), os.Environ(), false, r.JSON, os.Stdout)
}

func (r retentionRun) Run() error {
	return app.Retention(context.Background(), os.Environ(), !r.DryRun, r.JSON, os.Stdout)
}

func (a apply) Run() error {
	file := os.Stdin
	if a.File != "-" {
		opened, err := os.Open(a.File)
		if err != nil {
			return err
		}
		defer func() { _ = opened.Close() }() // it is only read
		file = opened
	}
	return app.ApplyCommand{DryRun: a.DryRun, JSON: a.JSON}.Run(context.Background(), os.Environ(), file, os.Stdout)
}

func (h healthcheck) Run() error { return web.AwaitReady(context.Background(), h.Address, h.Wait) }

func main() {
	var typed commands
	parsed := kong.Parse(&typed, kong.Name("resourceapi"), kong.Description("Serves the workspace API's modules."),
		kong.Vars{"version": version.Line("resourceapi")})
	if typed.Config != "" {
		_ = os.Setenv(envconf.Config, typed.Config) // fails only for an invalid name
	}
	if err := parsed.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "resourceapi:", pg.ExplainDenied(err, "almoner_resourceapi"))
		if advice := envconf.Advice(err, os.Environ()); advice != "" {
			fmt.Fprintln(os.Stderr, advice)
		}
		if difference, ok := errors.AsType[schema.State](err); ok {
			os.Exit(difference.ExitStatus())
		}
		os.Exit(1)
	}
}
