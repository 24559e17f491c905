package child

import (
	"os"
	"strings"
	"testing"
)

func TestCause_IsFirstLineThatNamesFailure(t *testing.T) {
	for output, want := range map[string]string{
		"": "",
		"creating subdirectories ... ok\n2026-11-23 FATAL:  could not write to file \"pg_wal/xlogtemp.7\": No space " +
			"left on device\n" +
			"child process exited with exit code 1\n" +
			"initdb: removing data directory \"/x/data.new\"\n": "2026-11-23 FATAL:  could not write to file " +
			"\"pg_wal/xlogtemp.7\": No space left on device",
		"LOG:  starting PostgreSQL\nLOG:  could not bind IPv4 address\nHINT:  wait\nFATAL:  could not create any " +
			"TCP/IP sockets\nLOG:  database system is shut down\n": "LOG:  could not bind IPv4 address",
		"panic: nil map\n\ngoroutine 1 [running]:\nmain.main()\nexit status 2\n": "panic: nil map",
		`{"level":"INFO","msg":"listens"}` + "\n" +
			`{"level":"ERROR","msg":"serve: address in use"}` + "\n" +
			`{"level":"INFO","msg":"stopped"}`: `{"level":"ERROR","msg":"serve: address in use"}`,
		`{"level":"WARN","msg":"connection refused"}` + "\n" +
			`{"level":"ERROR","msg":"request"}` + "\n" +
			`{"level":"INFO","msg":"stopped"}`: `{"level":"INFO","msg":"stopped"}`,
		"one\ntwo\n": "two",
		"error: an old one\n" + strings.Repeat("fine\n", 30): "fine",
	} {
		if got := Cause(output); got != want {
			t.Errorf("of %q: %q, want %q", output, got, want)
		}
	}
}

// The last line of a program that a signal ended does not say why it ended, unless it names a failure.
func TestOutcome_OfSignalQuotesFailureOnly(t *testing.T) {
	for script, want := range map[string]string{
		`echo 'ready'; kill -9 $$`:            "script ended with signal: killed",
		`echo 'fatal: no memory'; kill -9 $$`: "script ended with signal: killed: fatal: no memory",
		`echo 'ready'; exit 3`:                "script ended with exit status 3: ready",
	} {
		if err := Run(t.Context(), shell(t, script)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
	}
}

// The log of an earlier run does not count.
func TestOutcome_IgnoresEarlierRuns(t *testing.T) {
	spec := shell(t, `echo 'error: the disk is full'; echo 'clearing up'; exit 3`)
	must(t, os.WriteFile(spec.Log, []byte("error: of yesterday\n"), 0o600))
	err := Run(t.Context(), spec)
	if err == nil || err.Error() != "script ended with exit status 3: error: the disk is full" {
		t.Errorf("%v", err)
	}
}
