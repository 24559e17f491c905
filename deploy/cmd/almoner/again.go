package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Tests here kill servers, cut connections and look at the clock, on machines that others use too. A package that fails
// is therefore tried once more, whole and alone, and both results are shown: what is broken fails again, what was
// disturbed does not.

// mostTriedAgain is how many packages of a module may have been disturbed: more than that are broken.
const mostTriedAgain = 3

// testModule runs the tests of a module and remembers a failure.
func (t *trial) testModule(ctx context.Context, m module, flags []string) {
	if ctx.Err() != nil {
		return
	}
	name := "go test " + strings.Join(flags, " ") + " in " + m.name
	fmt.Println("almoner: " + name)
	began := time.Now()
	printed, err := t.goTest(ctx, m, append(flags, "./..."))
	again := triedAgain(printed)
	if err != nil && len(again) > 0 && ctx.Err() == nil {
		fmt.Printf("almoner: FAILED AT FIRST, tried once more, alone: %s\n", strings.Join(again, " "))
		_, err = t.goTest(ctx, m, append(append(slices.Clone(flags), "-p=1", "-count=1"), again...))
	}
	if err != nil && ctx.Err() == nil {
		t.failed = append(t.failed, name)
		fmt.Printf("almoner: %s FAILED after %s: %v\n", name, time.Since(began).Round(time.Second), err)
	}
}

func (t *trial) goTest(ctx context.Context, m module, arguments []string) (printed []byte, err error) {
	var out bytes.Buffer
	environment := m.workspace()
	if slices.Contains(arguments, "-race") {
		environment = append(environment, "CGO_ENABLED=1") // which the race detector needs
	}
	if m.alone { // browsers and gateways speak HTTP/2, which the services are built without
		environment = append(environment, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=readonly -trimpath"))
	}
	err = t.command(ctx, m.name, environment, io.MultiWriter(os.Stdout, &out), "go", append([]string{
		"test",
	}, arguments...)...).
		Run()
	return out.Bytes(), err
}

var (
	failedPackage = regexp.MustCompile(`(?m)^FAIL\t(\S+)\t[0-9.]+s$`)

	// unforgiven is what no second try makes good: a data race, and a secret where it must not be (package harness).
	unforgiven = regexp.MustCompile(`WARNING: DATA RACE|secrets of this run are in|\[build failed\]|\[setup failed\]`)
)

// triedAgain names the packages, of those that failed by what go test printed, that deserve a second try.
func triedAgain(printed []byte) []string {
	if unforgiven.Match(printed) {
		return nil
	}
	var packages []string
	for _, found := range failedPackage.FindAllSubmatch(printed, -1) {
		packages = append(packages, string(found[1]))
	}
	if len(packages) > mostTriedAgain {
		return nil
	}
	return packages
}
