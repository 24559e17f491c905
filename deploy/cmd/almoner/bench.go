package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// measurements are the parts of `make bench`: the test of each, and its time limit.
func measurements() map[string][2]string {
	return map[string][2]string{
		"speed":   {"^TestSpeed$", "20m"},
		"growth":  {"^TestGrowth$", "20m"},
		"soak":    {"^TestSoak$", "20m"},
		"startup": {"^TestStartup$", "5m"},
		"floor":   {"^TestFloor$", "5m"},
		"cluster": {"^TestCluster$", "10m"},
		"citus":   {"^TestCitus$", "10m"},
		"landed":  {"^TestLanded$", "15m"},
	}
}

const defaultMeasurement = "speed"

// bench measures a part and writes the results to its section of e2e/bench/RESULTS.md. It checks nothing else.
// PROFILE=1 also writes profiles of the services; SHORT=1 runs everything at a small scale, which measures nothing.
func bench(ctx context.Context, root, part string) error {
	if part == "" {
		part = defaultMeasurement
	}
	what, known := measurements()[part]
	if !known {
		return fmt.Errorf("unknown part: use make bench PART=%s",
			strings.Join(slices.Sorted(maps.Keys(measurements())), "|"))
	}
	if err := dieWithParent(); err != nil {
		return err
	}
	t := newTestRun(root)
	if _, err := t.ensurePackages(ctx); err != nil {
		return err
	}
	arguments := []string{"test", "-v", "-count=1", "-timeout=" + what[1], "-run=" + what[0]}
	if os.Getenv("SHORT") != "" {
		arguments = append(arguments, "-short")
	}
	arguments = append(arguments, "./bench", "-measure")
	if os.Getenv("PROFILE") != "" {
		arguments = append(arguments, "-profiles="+filepath.Join(root, ".almoner", "profiles"))
	}
	err := t.withServers(ctx, func() { t.step(ctx, "bench, "+part, "e2e", nil, "go", arguments...) })
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && len(t.failed) > 0 {
		err = fmt.Errorf("failed: %s", strings.Join(t.failed, "; "))
	}
	return err
}
