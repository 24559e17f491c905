package main

import (
	"context"
	"errors"
	"fmt"
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
