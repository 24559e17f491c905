package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

// A program is a program and the settings that it reads.
type program struct {
	name     string
	settings []envconf.Setting
}

// Files returns the generated files of the repository at root, by path relative to it, using the programs in the folder
// binaries.
func Files(ctx context.Context, root, binaries string) (map[string]string, error) {
	var services []program
	for _, name := range []string{"authserver", "resourceapi"} {
		out, err := exec.CommandContext(ctx, filepath.Join(binaries, name), "settings", "--json").Output()
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			return nil, fmt.Errorf("%s settings: %w: %s", name, err, child.Cause(string(failed.Stderr)))
		}
		if err != nil {
			return nil, fmt.Errorf("%s settings: %w", name, err)
		}
		p := program{name: name}
		if err := json.Unmarshal(out, &p.settings); err != nil {
			return nil, fmt.Errorf("%s settings: %w", name, err)
		}
		services = append(services, p)
	}
	const page = "deploy/SETTINGS.md"
	content, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	all := append(slices.Clone(services), program{name: "make run", settings: envconf.Describe(Run{})},
		program{name: "gateway", settings: envconf.Describe(Gateway{})})
	text, err := between(string(content), "settings", table(all))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", page, err)
	}
	return map[string]string{page: text, "shared/config/envconf/names.txt": names(services)}, nil
}

// between puts rows between the two comments of a marker.
func between(text, marker, rows string) (string, error) {
	first, last := "<!-- "+marker+": written by make generate -->\n", "<!-- end of "+marker+" -->\n"
	before, rest, opened := strings.Cut(text, first)
	_, after, closed := strings.Cut(rest, last)
	if !opened || !closed {
		return "", fmt.Errorf("the comments around %s are missing", marker)
	}
	return before + first + rows + last + after, nil
}

// names returns the setting names of all programs, one on a line.
func names(programs []program) string {
	var all []string
	for _, p := range programs {
		for _, s := range p.settings {
			all = append(all, s.Name+"\n")
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "")
}

// table returns a row for each setting, sorted by name. Equal settings of several programs share a row.
func table(programs []program) string {
	type row struct{ name, doc, value, programs string }
	var rows []row
	for _, p := range programs {
		for _, s := range p.settings {
			next := row{"`" + s.Name + "`", s.Doc, value(s), p.name}
			if s.Secret {
				next.name += " (secret)"
			}
			same := slices.IndexFunc(
				rows,
				func(r row) bool { return r.name == next.name && r.doc == next.doc && r.value == next.value },
			)
			if same >= 0 {
				rows[same].programs += ", " + p.name
				continue
			}
			rows = append(rows, next)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	var out strings.Builder
	write := func(cells ...string) { out.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	write("setting", "program", "default", "meaning")
	write("---", "---", "---", "---")
	for _, r := range rows {
		write(r.name, r.programs, r.value, strings.ReplaceAll(r.doc, "|", `\|`))
	}
	return out.String()
}

func value(s envconf.Setting) string {
	switch {
	case s.Required:
		return "required"
	case s.Default == "":
		return ""
	}
	return "`" + s.Default + "`"
}
