package main

import (
	"context"
	_ "embed" // for guideText
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/deploy/local/settings"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/config/redisurl"
)

// buildServices builds both services at once, and reports the duration.
func buildServices(ctx context.Context, root string, options stack.Options) error {
	hint := ""
	if _, err := os.Stat(filepath.Join(options.Binaries, stack.Services()[0])); err != nil {
		hint = " (the first build takes some minutes)"
	}
	options.Progress("building the services" + hint)
	began := time.Now()
	if err := stack.Build(ctx, root, options.Binaries); err != nil {
		return err
	}
	options.Progress("built the services in " + time.Since(began).Round(100*time.Millisecond).String())
	return nil
}

func run(ctx context.Context, root string) error {
	if err := dieWithParent(); err != nil {
		return err
	}
	var config settings.Run
	if _, err := envconf.Load(&config, os.Environ()); err != nil {
		return err
	}
	home := config.Home
	if home == "" {
		home = filepath.Join(root, ".almoner")
	}
	options := stack.Options{
		Home:        home,
		Binaries:    filepath.Join(home, "bin"),
		Tools:       filepath.Join(home, "tools"),
		Port:        config.Port,
		DatabaseURL: config.DatabaseURL.Reveal(),
		RedisURL:    config.RedisURL.Reveal(),
		Mailbox:     true,

		LocalReceivers: true,
		Progress:       func(line string) { fmt.Println("almoner: " + line) },
	}
	redisurl.LogTo(slog.New(slog.DiscardHandler)) // errors say the same
	if err := stack.Check(ctx, options); err != nil {
		return err // before anything is installed or built
	}
	if err := ensureStores(ctx, options); err != nil {
		return err
	}
	began := time.Now()
	if err := buildServices(ctx, root, options); err != nil {
		return err
	}
	s, err := stack.Start(ctx, options)
	if err != nil {
		return err
	}
	options.Progress("everything runs, after " + time.Since(began).Round(time.Second).String())
	printGuide(os.Stdout, s, filepath.Join(home, "demo.json"))
	watching, endWatch := context.WithCancel(ctx)
	defer endWatch()
	go s.Watch(watching)
	ended := s.Wait(ctx)
	endWatch()
	fmt.Println()
	options.Progress("stopping")
	s.Stop()
	if ended != nil {
		return fmt.Errorf("%w; everything else was stopped", ended)
	}
	options.Progress("stopped; the data is kept for the next start")
	return nil
}

//go:embed guide.txt
var guideText string

var guide = template.Must(template.New("guide").Parse(guideText))

// printGuide prints addresses, logins and example requests.
func printGuide(out io.Writer, s *stack.Stack, file string) {
	_ = guide.Execute(out, struct {
		demo.Demo
		ConsentURL, ExchangeCommand, File, Logs, Data string
	}{
		Demo:            s.Demo,
		ConsentURL:      consentURL(s.Demo),
		ExchangeCommand: exchangeCommand(s.Demo),
		File:            file,
		Logs:            s.LogDir(),
		Data:            s.StoreDir(),
	})
}

// The example of a PKCE verifier and its challenge (RFC 7636, appendix B).
const (
	exampleVerifier  = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	exampleChallenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
)

// consentURL returns an authorization request of a connector.
func consentURL(d demo.Demo) string {
	c := d.Clients.MCP
	return d.AppURL + "/oauth/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {c.ClientID}, "redirect_uri": {c.RedirectURI}, "resource": {c.Resource},
		"scope": {c.Scope}, "state": {"demo"}, "code_challenge_method": {"S256"},
		"code_challenge": {exampleChallenge},
	}.Encode()
}

// exchangeCommand returns a command that exchanges the code of consentURL, which is in the variable CODE.
func exchangeCommand(d demo.Demo) string {
	c := d.Clients.MCP
	fixed := url.Values{
		"grant_type": {"authorization_code"}, "client_id": {c.ClientID}, "redirect_uri": {c.RedirectURI},
		"resource": {c.Resource}, "code_verifier": {exampleVerifier},
	}
	return "curl " + d.BaseURL + "/v1/account/oauth/token -d '" + fixed.Encode() + "' -d code=$CODE"
}
