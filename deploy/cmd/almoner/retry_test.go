package main

import (
	"slices"
	"strings"
	"testing"
)

// TestRetryable_ExcludesRacesLeaksAndBuildFailures checks which packages are retried, from output of go test.
func TestRetryable_ExcludesRacesLeaksAndBuildFailures(t *testing.T) {
	one := "--- FAIL: TestSlow (5.00s)\n    slow_test.go:9: not within 5 " +
		"s\nFAIL\nFAIL\texample.org/slow\t5.012s\nok  \texample.org/fine\t0.1s\nFAIL\n"
	for name, each := range map[string]struct {
		printed string
		want    []string
	}{
		"nothing failed":          {"ok  \texample.org/fine\t0.1s\n", nil},
		"one failed":              {one, []string{"example.org/slow"}},
		"a data race":             {"==================\nWARNING: DATA RACE\n" + one, nil},
		"a leak":                  {"FAIL: secrets of this run are in Redis: [\"a token\"]\n" + one, nil},
		"another did not compile": {one + "FAIL\texample.org/broken [build failed]\n", nil},
		"four failed":             {strings.Repeat(one, 4), nil},
		"three failed":            {strings.Repeat(one, 3), slices.Repeat([]string{"example.org/slow"}, 3)},
	} {
		if got := retryable([]byte(each.printed)); !slices.Equal(got, each.want) {
			t.Errorf("%s: tried again: %v, want %v", name, got, each.want)
		}
	}
}
