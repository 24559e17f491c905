package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// guiding lists the packages whose branches guide the fuzzer: our own and those that parse requests. By default go
// examines every branch of every linked package after each input, which takes many times as long as the input itself.
var guiding = []string{
	"github.com/almonerhq/",
	"github.com/ory/fosite",
	"github.com/lestrrat-go/",
	"encoding/",
	"net/url",
	"mime",
	"main",
}

const guidedCompiler = "guided-compiler"

const instrumented = "-d=libfuzzer"

// compileGuided is a -toolexec of go. It runs a tool of go unchanged, except that packages not listed in guiding are
// compiled without coverage counters.
func compileGuided(tool string, args []string) error {
	if filepath.Base(tool) == "compile" && slices.Equal(args, []string{"-V=full"}) {
		return compilerVersion(tool)
	}
	name := ""
	if at := slices.Index(args, "-p"); at >= 0 && at+1 < len(args) {
		name = args[at+1]
	}
	if !slices.ContainsFunc(guiding, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
		args = slices.DeleteFunc(args, func(arg string) bool { return arg == instrumented })
	}
	return syscall.Exec(tool, append([]string{tool}, args...), os.Environ())
}

// compilerVersion prints a version other than the compiler's own, so that go's cache distinguishes the results of the
// two.
func compilerVersion(tool string) error {
	out, err := exec.Command(tool, "-V=full").Output()
	if err != nil {
		return fmt.Errorf("%s -V=full: %w", tool, err)
	}
	name, rest, _ := bytes.Cut(out, []byte(" version "))
	fmt.Printf("%s version guided-by-%s-%s", name, strings.Join(guiding, ","), rest)
	return nil
}
