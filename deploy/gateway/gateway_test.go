package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestFind_IgnoresOldPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for printed, found := range map[string]bool{
		"2.6.2":           true,
		"v2.10.2 h1:xyz=": true,
		"v2.5.9":          false,
		"v1.99.0":         false,
		"v3.0.0":          true,
		"":                false,
	} {
		tools := t.TempDir()
		path := filepath.Join(tools, "root/usr/bin/caddy")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\necho '%s'\n", printed), 0o755); err != nil {
			t.Fatal(err)
		}
		program, err := Find("caddy", tools)
		if found && (err != nil || program.Path != path) || !found && !errors.Is(err, ErrMissing) {
			t.Errorf("version %q: %q, %v", printed, program.Path, err)
		}
	}
	if _, err := Find("caddy", ""); !errors.Is(err, ErrMissing) {
		t.Errorf("nowhere: %v", err)
	}
}
