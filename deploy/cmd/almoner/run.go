package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/deploy/local/stack"
)

const defaultPort = 8080

func run(ctx context.Context, root string) error {
	if err := dieWithParent(); err != nil {
		return err
	}
	home := os.Getenv("ALMONER_HOME")
	if home == "" {
		home = filepath.Join(root, ".almoner")
	}
	port, err := portFrom(os.Getenv("PORT"))
	if err != nil {
		return err
	}
	options := stack.Options{
		Home: home, Binaries: filepath.Join(home, "bin"), Tools: filepath.Join(home, "tools"), Port: port,
		DatabaseURL: os.Getenv("ALMONER_DATABASE_URL"), RedisURL: os.Getenv("ALMONER_REDIS_URL"),
		Say: func(line string) { fmt.Println("almoner: " + line) },
	}
	if err := stack.Check(options); err != nil {
		return err // before anything is installed or built
	}
	if err := ensureStores(ctx, options); err != nil {
		return err
	}
	options.Say("building the services")
	if err := stack.Build(ctx, root, options.Binaries); err != nil {
		return err
	}
	s, err := stack.Start(ctx, options)
	if err != nil {
		return err
	}
	printGuide(os.Stdout, s, filepath.Join(home, "demo.json"))
	ended := s.Wait(ctx)
	fmt.Println()
	options.Say("stopping")
	s.Stop()
	if ended != nil {
		return fmt.Errorf("%w; everything else was stopped", ended)
	}
	options.Say("stopped; what was stored is there at the next start")
	return nil
}

func portFrom(text string) (int, error) {
	if text == "" {
		return defaultPort, nil
	}
	port, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || port < 1 {
		return 0, errors.New("PORT must be a number, like PORT=9000")
	}
	return port, nil
}
