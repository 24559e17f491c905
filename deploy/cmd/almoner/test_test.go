package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
)

func TestRepeat_RunsOnlyFailedTests(t *testing.T) {
	t.Parallel()
	printed := "--- FAIL: TestOne (0.1s)\n    --- FAIL: TestOne/part (0.1s)\n--- FAIL: TestTwo (0.1s)\nFAIL\n" +
		"FAIL\tx/a\t1s\nok  \tx/b\t1s\nFAIL\tx/c [build failed]\nFAIL\n"
	got := repeat(".", []string{"CGO_ENABLED=1"}, "go", []string{"test", "-race", "./..."}, printed)
	want := []string{
		"cd . && CGO_ENABLED='1' go test -race -run '^(TestOne|TestTwo)$' x/a",
		"cd . && CGO_ENABLED='1' go test -race x/c",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	got = repeat("e2e", nil, "staticcheck", []string{"./..."}, "x.go:1: unused")
	if !slices.Equal(got, []string{"cd e2e && staticcheck ./..."}) {
		t.Errorf("%q", got)
	}
}

// A failed step is named with its command, does not prevent the next one, and its output is not mixed with another's.
func TestSideBySide_KeepsOutputOfStepsApart(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	run := newTestRun(t.TempDir())
	run.out = &out
	prints := func(name string) func(context.Context, *testRun) {
		return func(ctx context.Context, own *testRun) {
			own.step(ctx, name, ".", nil, "sh", "-c", "for n in 1 2 3; do echo "+name+"; done; exit 3")
		}
	}
	run.sideBySide(t.Context(), prints("one"), prints("two"), prints("three"))
	for _, name := range []string{"one", "two", "three"} {
		want := "almoner: " + name + "\n" + strings.Repeat(name+"\n", 3) + "almoner: " + name + " FAILED"
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output of %s is not together:\n%s", name, out.String())
		}
	}
	if err := run.result(nil); err == nil || strings.Count(err.Error(), "to repeat it:\n  cd . && sh -c") != 3 {
		t.Errorf("%v", err)
	}
}
