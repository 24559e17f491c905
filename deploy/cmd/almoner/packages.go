package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// ensureStores installs the stores that are to be started and are missing.
func ensureStores(ctx context.Context, options stack.Options) error {
	missing, packages := missingStores(options)
	if len(missing) == 0 {
		return nil
	}
	err := installPackages(ctx, options.Tools, options.Progress, packages...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if still, _ := missingStores(options); len(still) > 0 {
		if err == nil {
			err = errors.New("this system's packages are too old, or in an unknown place")
		}
		return fmt.Errorf(
			"%s: run sudo apt-get install %s, then try again (%w)",
			errors.Join(still...), strings.Join(packages, " "), err,
		)
	}
	return nil
}

func missingStores(options stack.Options) (missing []error, packages []string) {
	if options.DatabaseURL == "" {
		if err := localstore.FindPostgres(options.Tools); err != nil {
			missing, packages = append(missing, err), append(packages, "postgresql")
		}
	}
	if options.RedisURL == "" {
		if err := localstore.FindRedis(options.Tools); err != nil {
			missing, packages = append(missing, err), append(packages, "redis-server")
		}
	}
	return missing, packages
}

// findChromium returns the path of a Chromium, or "". For a privately unpacked one it writes a script that sets the
// library path.
func findChromium(tools string) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	program := filepath.Join(tools, "root/usr/lib/chromium/chromium")
	if _, err := os.Stat(program); err != nil {
		return ""
	}
	libraries, _ := filepath.Glob(filepath.Join(tools, "root/usr/lib/*-linux-gnu*"))
	starter := filepath.Join(tools, "chromium")
	script := fmt.Sprintf("#!/bin/sh\nLD_LIBRARY_PATH='%s' exec '%s' \"$@\"\n", strings.Join(libraries, ":"), program)
	if err := os.WriteFile(starter, []byte(script), 0o755); err != nil {
		return ""
	}
	return starter
}
