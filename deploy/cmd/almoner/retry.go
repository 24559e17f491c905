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

// Tests here kill servers, cut connections and depend on time, on machines that other programs use too. So a failed
// package is tested once more, whole and alone, and both results are shown: a defect fails again, a disturbance does
// not.

// maxRetried is the maximum number of a module's packages that are tested again: more are broken, not disturbed.
const maxRetried = 3

// testModule runs the tests of a module and records a failure.
func (t *testRun) testModule(ctx context.Context, m module, flags []string) {
	if ctx.Err() != nil {
		return
	}
	name := "go test " + strings.Join(flags, " ") + " in " + m.name
	fmt.Println("almoner: " + name)
	began := time.Now()
	printed, err := t.goTest(ctx, m, append(flags, "./..."))
	again := retryable(printed)
	if err != nil && len(again) > 0 && ctx.Err() == nil {
		fmt.Printf("almoner: FAILED, running once more alone: %s\n", strings.Join(again, " "))
		_, err = t.goTest(ctx, m, append(append(slices.Clone(flags), "-p=1", "-count=1"), again...))
	}
	if err != nil && ctx.Err() == nil {
		t.failed = append(t.failed, name)
		fmt.Printf("almoner: %s FAILED after %s: %v\n", name, time.Since(began).Round(time.Second), err)
	}
}

func (t *testRun) goTest(ctx context.Context, m module, arguments []string) (printed []byte, err error) {
	var out bytes.Buffer
	environment := m.workspace()
	if slices.Contains(arguments, "-race") {
		environment = append(environment, "CGO_ENABLED=1") // the race detector needs it
	}
	if m.alone { // browsers and gateways use HTTP/2, which the services' build tags exclude
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

	// neverRetried matches failures that are never retried: data races, leaked secrets (package harness) and build
	// errors.
	neverRetried = regexp.MustCompile(`WARNING: DATA RACE|secrets of this run are in|\[build failed\]|\[setup failed\]`)
)

// retryable returns the packages to retry, from the output of go test.
func retryable(printed []byte) []string {
	if neverRetried.Match(printed) {
		return nil
	}
	var packages []string
	for _, found := range failedPackage.FindAllSubmatch(printed, -1) {
		packages = append(packages, string(found[1]))
	}
	if len(packages) > maxRetried {
		return nil
	}
	return packages
}
