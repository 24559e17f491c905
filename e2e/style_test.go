package e2e

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxColumns = 120
	tabWidth   = 4
)

// The repository's Go files have lines of at most 120 columns.
func TestStyle_LinesAreAtMost120ColumnsWide(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), "find", "authserver", "resourceapi", "shared", "deploy", "e2e", "-name", "*.go")
	command.Dir = ".."
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(out))
	if len(files) < 500 {
		t.Fatalf("only %d Go files were found", len(files))
	}
	for _, name := range files {
		content, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(content))
		lines.Buffer(nil, len(content)+1)
		for number := 1; lines.Scan(); number++ {
			text := strings.ReplaceAll(lines.Text(), "\t", strings.Repeat(" ", tabWidth))
			if columns := utf8.RuneCountInString(text); columns > maxColumns {
				t.Errorf("%s:%d has %d columns, want at most %d", name, number, columns, maxColumns)
			}
		}
	}
}
