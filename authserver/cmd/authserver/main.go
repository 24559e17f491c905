// Command authserver is Almoner's authorization server: clients, login, consent, settings, tokens and grants.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/doctor"
	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	schema "github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/net/version"
	"github.com/almonerhq/almoner/shared/net/web"
)

type commands struct {
	Config string `placeholder:"FILE" help:"Settings file, with lines of NAME=value. The environment takes precedence. Same as ALMONER_CONFIG."`

	Serve       serve         `cmd:"" help:"Serve until SIGTERM or SIGINT."`
	Migrate     migrate       `cmd:"" help:"Migrate the database schema. Needs the owner of the database in ALMONER_DATABASE_URL."`
	CheckConfig checkConfig   `cmd:"" help:"Check the settings and print them without secrets."`
	Settings    settings      `cmd:"" help:"List the settings."`
	Admin       adminCommands `cmd:"" help:"Manage organisations, workspaces, users, members, clients, keys and grants."`
	Doctor      doctorCommand `cmd:"" help:"Replay a connector against a running server, and explain what is wrong."`
	Healthcheck healthcheck   `cmd:"" help:"Exit with 1 unless serve on this machine is ready. For container engines."`

	Version kong.VersionFlag `help:"Print the version."`
}

// adminCommands have no Run for kong, except those of backup: runAdmin prints their result.
type adminCommands struct {
	JSON bool `name:"json" help:"Write JSON."`
	admin.Commands
}

type serve struct{}

func (serve) Run(ctx context.Context) error {
	config, reading, err := app.LoadConfig(os.Environ())
	if err != nil {
		return err
	}
	log := web.NewLogger(os.Stderr, config.LogLevel)
	slog.SetDefault(log) // the destination of Go's log package, which libraries use
	redisurl.LogTo(log)
	reading.Warn(log)
	a, err := app.New(ctx, config, log)
	if err != nil {
		return err
	}
	return a.Serve(ctx)
}

type migrate struct {
	schema.Options
	Finish bool `xor:"what" help:"Finish the upgrade after the last process of the previous release has ended. The previous release no longer works afterwards."`
}

func (m migrate) Run(ctx context.Context) error {
	if m.Finish {
		return app.FinishUpgrade(ctx, os.Environ(), os.Stdout)
	}
	return app.Migrate(ctx, os.Environ(), m.Options, os.Stdout)
}

type checkConfig struct {
	JSON bool `name:"json" help:"Write JSON, including mistakes and warnings."`
}

func (c checkConfig) Run() error {
	_, reading, err := app.LoadConfig(os.Environ())
	return errors.Join(err, reading.Print(os.Stdout, c.JSON))
}

type settings struct {
	JSON bool `name:"json" help:"Write JSON."`
}

func (s settings) Run() error {
	return envconf.PrintSettings(os.Stdout, envconf.Describe(app.Config{}), s.JSON)
}

type healthcheck struct {
	Address string        `arg:"" optional:"" env:"ALMONER_LISTEN" default:"127.0.0.1:8081" help:"Address and port of the service."`
	Wait    time.Duration `default:"0s" help:"Keep checking for up to this long until the service is ready."`
}

func (h healthcheck) Run(ctx context.Context) error { return web.AwaitReady(ctx, h.Address, h.Wait) }

// maxPasswordFile is far longer than any password, in bytes.
const maxPasswordFile = 4 << 10

// doctorCommand needs no configuration and no database: it makes the requests of a connector.
type doctorCommand struct {
	doctor.Options
	JSON bool `name:"json" help:"Write JSON at the end."`
}

// Run writes its findings to standard output. Instructions to the user go to standard error.
func (d doctorCommand) Run(ctx context.Context) error {
	d.Prompt = func(text string) { fmt.Fprintln(os.Stderr, "\n"+text) }
	if d.CallbackStdin {
		d.Pasted = os.Stdin
	}
	if err := d.readPassword(); err != nil {
		return exit{err, exitUsage}
	}
	if !d.JSON {
		d.Tell = (&doctor.Text{Out: os.Stdout, Head: "As " + d.As + ": " + d.URL}).Tell
	}
	report, err := doctor.Run(ctx, d.Options)
	if errors.Is(err, doctor.ErrUsage) {
		return exit{err, exitUsage}
	}
	if err != nil {
		return err
	}
	if d.JSON {
		if err := report.JSON(os.Stdout); err != nil {
			return err
		}
	} else {
		report.End(os.Stdout)
	}
	if report.Verdict == doctor.Fail || ctx.Err() != nil {
		return exit{nil, exitFault}
	}
	return nil
}

func (d *doctorCommand) readPassword() error {
	if d.PasswordFile == "" {
		return nil
	}
	if d.PasswordFile == "-" && d.CallbackStdin {
		return errors.New("--password-file - and --callback-stdin cannot both read standard input")
	}
	file := os.Stdin
	if d.PasswordFile != "-" {
		opened, err := os.Open(d.PasswordFile)
		if err != nil {
			return fmt.Errorf("read the password: %w", err)
		}
		defer func() { _ = opened.Close() }()
		file = opened
	} else if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return errors.New("standard input is a terminal: pass the password in a file")
	}
	content, err := io.ReadAll(io.LimitReader(file, maxPasswordFile))
	if err != nil {
		return fmt.Errorf("read the password: %w", err)
	}
	d.Password = credential.Secret(strings.TrimRight(string(content), "\r\n"))
	if d.Password == "" {
		return errors.New("the password file is empty")
	}
	return nil
}

// Exit statuses of a command that failed.
const (
	exitFault = 1
	exitUsage = 2
)

// exit is an error with the exit status. If it holds no error, everything was already printed.
type exit struct {
	error
	status int
}

func (e exit) Unwrap() error { return e.error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var typed commands
	parsed := kong.Parse(&typed, kong.Name("authserver"), kong.Description("Almoner's authorization server."),
		kong.Vars{"version": version.Line("authserver")}, kong.BindTo(ctx, (*context.Context)(nil)),
		kong.UsageOnError(), kong.Exit(func(status int) {
			if status != 0 {
				status = exitUsage // the command line cannot be parsed
			}
			os.Exit(status)
		}))
	if typed.Config != "" {
		_ = os.Setenv(envconf.Config, typed.Config) // fails for invalid names
	}
	if err := run(ctx, parsed, typed.Admin.JSON); err != nil {
		os.Exit(printError(err))
	}
}

// run runs the selected command.
func run(ctx context.Context, parsed *kong.Context, asJSON bool) error {
	if command, ok := parsed.Selected().Target.Addr().Interface().(admin.Command); ok {
		return runAdmin(ctx, command, asJSON)
	}
	return parsed.Run()
}

// runAdmin runs a command of the operator and prints its result.
func runAdmin(ctx context.Context, command admin.Command, asJSON bool) error {
	if checked, ok := command.(admin.Checked); ok {
		if err := checked.Check(); err != nil {
			return err
		}
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	service, done, err := app.Admin(ctx, os.Environ(), log)
	if err != nil {
		return err
	}
	result, err := service.Run(ctx, command)
	done()
	if err != nil {
		return err
	}
	return admin.Print(os.Stdout, asJSON, result)
}

// printError prints what went wrong and returns the exit status.
func printError(err error) int {
	status := exitFault
	if e, ok := errors.AsType[exit](err); ok {
		err, status = e.error, e.status
	}
	if difference, ok := errors.AsType[schema.State](err); ok {
		status = difference.ExitStatus()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "authserver:", pg.ExplainDenied(err, "almoner_authserver"))
		if advice := envconf.Advice(err, os.Environ()); advice != "" {
			fmt.Fprintln(os.Stderr, advice)
		}
	}
	return status
}
