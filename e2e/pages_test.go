package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/gateway"
	"github.com/almonerhq/almoner/deploy/local/settings"
	"github.com/almonerhq/almoner/shared/config/envconf"
)

// activeProgramme is an active programme of the demo's main workspace.
const activeProgramme = "Tea Dance at Wisbech"

// pages are the pages whose lines can be pasted, in this order: the second one uses variables of the first.
func pages(t *testing.T) []byte {
	t.Helper()
	var all []byte
	for _, name := range []string{"../README.md", "../authserver/README.md"} {
		all = append(all, fileContent(t, name)...)
	}
	return all
}

// The lines of the README and of authserver's work as they are when pasted, one block after the other.
func TestREADME_LinesWorkWhenPasted(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(pages(t), -1)
	if len(blocks) < 5 {
		t.Fatalf("%d blocks to paste", len(blocks))
	}
	script := "set -eu\n"
	for _, block := range blocks {
		script += string(block[1])
	}
	dir := t.TempDir()
	stack := shared(t)
	demo, err := json.MarshalIndent(stack.Demo, "", "  ")
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(dir, ".almoner", "bin"), 0o700))
	repository, err := filepath.Abs("..")
	must(t, err)
	for name, there := range map[string]string{
		".almoner/admin.env":       stack.AdminFile(),
		".almoner/resourceapi.env": stack.ResourceapiFile(),
		".almoner/bin/authserver":  stack.Authserver(),
		".almoner/bin/resourceapi": filepath.Join(filepath.Dir(stack.Authserver()), "resourceapi"),
		"shared":                   filepath.Join(repository, "shared"),
	} {
		must(t, os.Symlink(there, filepath.Join(dir, name)))
	}
	must(t, os.WriteFile(filepath.Join(dir, ".almoner", "demo.json"), demo, 0o600))
	for _, shell := range []string{"bash", "sh"} {
		command := exec.CommandContext(t.Context(), shell, "-c", script)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v", shell, err)
		}
		output := string(out)
		for want, times := range map[string]int{
			`"nextCursor"`:                   3,
			`"error"`:                        1,
			`"type":"personal_access_token"`: 1,
			`"structuredContent":{"user":`:   1,
			"All is well so far":             1,
			`/v1/engage/public/embed.js" data-form="alm_embed_`:          1,
			"\n" + activeProgramme + "\n":                                1,
			"\nprogrammes:read:programmes programmes:write:programmes\n": 1,
			"\nprogrammes:read:programmes\n":                             1,
			"\nthe same token again\n":                                   1,
			`"error":"invalid_grant"`:                                    1,
			"Sam Reed":                                                   1,
			"Removed the member. Revoked:":                               1,
			"\n1 created, 0 changed, 0 unchanged\nDry run: ":             2,
			"\n1 created, 0 changed, 0 unchanged\n":                      3,
		} {
			if got := strings.Count(output, want); got != times {
				t.Errorf("%s: %q is in the output %d times, want %d (%d bytes)", shell, want, got, times, len(out))
			}
		}
	}
}

// The Go block of the README is the program that the page runs.
func TestREADME_GoBlockIsInExample(t *testing.T) {
	t.Parallel()
	readme := fileContent(t, "../README.md")
	program := fileContent(t, "../shared/client/examples/list/main.go")
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("no Go block")
	}
	for line := range strings.Lines(string(block[1])) {
		if !strings.Contains(string(program), "\n\t"+line) {
			t.Errorf("not in the program: %s", line)
		}
	}
	if lines := strings.Count(string(readme), "\n"); lines > 150 {
		t.Errorf("README.md has %d lines, want at most 150", lines)
	}
}

// markdown returns the pages of the repository, relative to its root.
func markdown(t *testing.T) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
	list.Dir = ".."
	out, err := list.Output()
	must(t, err)
	pages := strings.Fields(string(out))
	if len(pages) < 20 {
		t.Fatalf("%d pages", len(pages))
	}
	return pages
}

var (
	link  = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]+))?\)`)
	fence = regexp.MustCompile("(?s)\n```.*?\n```")
)

// Every relative link in a page leads to an existing file and heading.
func TestPages_LinksHaveTargets(t *testing.T) {
	t.Parallel()
	found := 0
	for _, page := range markdown(t) {
		content := fileContent(t, filepath.Join("..", page))
		for _, match := range link.FindAllSubmatch(fence.ReplaceAll(content, nil), -1) {
			found++
			target := filepath.Join("..", page)
			if name := string(match[1]); name != "" {
				target = filepath.Join("..", filepath.Dir(page), name)
			}
			info, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s: %s does not exist", page, match[1])
				continue
			}
			if anchor := string(match[2]); anchor != "" && !info.IsDir() && strings.HasSuffix(target, ".md") {
				if !slices.Contains(headings(fileContent(t, target)), anchor) {
					t.Errorf("%s: %s has no heading #%s", page, target, anchor)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("%d links", found)
	}
}

// headings returns the anchors that GitHub generates for headings.
func headings(page []byte) []string {
	var anchors []string
	for _, match := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllSubmatch(page, -1) {
		plain := regexp.MustCompile("[^a-z0-9 _-]").ReplaceAll(bytes.ToLower(match[1]), nil)
		anchors = append(anchors, strings.ReplaceAll(string(plain), " ", "-"))
	}
	return anchors
}

// deploy/README.md links to each page about running Almoner, and each page has at most 150 lines.
func TestDeployPages_AreShortAndLinked(t *testing.T) {
	t.Parallel()
	overview := fileContent(t, "../deploy/README.md")
	pages, err := filepath.Glob("../deploy/docs/*.md")
	must(t, err)
	pages = append(pages, "../deploy/README.md", "../deploy/UPGRADING.md")
	for _, page := range pages {
		if lines := bytes.Count(fileContent(t, page), []byte("\n")); lines > 150 {
			t.Errorf("%s has %d lines, want at most 150", page, lines)
		}
		name, err := filepath.Rel("../deploy", page)
		must(t, err)
		if name != "README.md" && !bytes.Contains(overview, []byte("]("+name+")")) {
			t.Errorf("deploy/README.md has no link to %s", name)
		}
	}
}

// SETTINGS.md describes exactly the variables that the Caddyfile reads.
func TestSettings_DescribeVariablesOfCaddyfile(t *testing.T) {
	t.Parallel()
	var described []string
	for _, s := range envconf.Describe(settings.Gateway{}) {
		described = append(described, s.Name)
	}
	var read []string
	for _, match := range regexp.MustCompile(`\{\$(GATEWAY_\w+)`).FindAllStringSubmatch(gateway.Caddyfile, -1) {
		read = append(read, match[1])
	}
	slices.Sort(described)
	slices.Sort(read)
	if read = slices.Compact(read); !slices.Equal(described, read) {
		t.Errorf("the Caddyfile reads %q, and %q are described", read, described)
	}
}

// The generated documentation of the settings matches the programs.
func TestSettings_AreDocumented(t *testing.T) {
	files, err := settings.Files(t.Context(), "..", filepath.Dir(shared(t).Authserver()))
	must(t, err)
	if len(files) < 2 {
		t.Fatalf("%d files", len(files))
	}
	for path, want := range files {
		if content, err := os.ReadFile(filepath.Join("..", path)); err != nil || string(content) != want {
			t.Errorf("%s is out of date (%v): run make generate", path, err)
		}
	}
}

func TestSettings_CheckConfig(t *testing.T) {
	folder := filepath.Dir(shared(t).Authserver())
	key := filepath.Join(t.TempDir(), "keys")
	file := filepath.Join(t.TempDir(), "settings")
	must(t, os.WriteFile(key, []byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"), 0o600))
	must(t, os.WriteFile(file, []byte("ALMONER_BASE_URL=https://api.example.org\n"+
		"ALMONER_APP_URL='https://app.example.org'\n"+"ALMONER_DATABASE_URL=postgres://a:hush@localhost/a\n"+
		"OTEL_EXPORTER_OTLP_HEADERS=Authorization=hush\n"), 0o600))
	for _, program := range []string{"authserver", "resourceapi"} {
		run := func(environ []string, arguments ...string) (out, errs string, code int) {
			t.Helper()
			command := exec.CommandContext(t.Context(), filepath.Join(folder, program), arguments...)
			command.Env = environ
			var outBuffer, errBuffer strings.Builder
			command.Stdout, command.Stderr = &outBuffer, &errBuffer
			if _ = command.Run(); command.ProcessState == nil {
				t.Fatalf("%s does not run", program)
			}
			if strings.Contains(outBuffer.String()+errBuffer.String(), "hush") {
				t.Errorf("%s prints a secret", program)
			}
			return outBuffer.String(), errBuffer.String(), command.ProcessState.ExitCode()
		}
		good := []string{"ALMONER_KEYS_FILE=" + key, "ALMONER_REDIS_URL=redis://:hush@localhost:6379"}
		out, errs, code := run(good, "check-config", "--config", file)
		for _, want := range []string{
			`ALMONER_BASE_URL +https://api.example.org +config ` + file,
			`ALMONER_KEYS +\(set\) +file ` + key,
			`ALMONER_REDIS_URL +\(set\) +environment`,
			`ALMONER_NOTICE +4s +default`,
			`OTEL_EXPORTER_OTLP_HEADERS +\(set\) +config ` + file,
			`OTEL_TRACES_SAMPLER_ARG +1 +default`,
		} {
			if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(out) {
				t.Errorf("%s does not print %s: %s", program, want, out)
			}
		}
		if code != 0 || errs != "" {
			t.Errorf("%s: %d %s", program, code, errs)
		}
		bad := append(good, "ALMONER_KEYS=hush", "ALMONER_CONFIG="+file, "ALMONER_NOTICE=hush",
			"ALMONER_DATABSE_URL=hush", "OTEL_TRACES_SAMPLER_ARG=hush")
		for _, arguments := range [][]string{{"check-config"}, {"serve"}} {
			out, errs, code = run(bad, arguments...)
			for _, want := range []string{
				"4 mistakes", "ALMONER_KEYS and ALMONER_KEYS_FILE are both set", "ALMONER_NOTICE must be a duration",
				"did you mean ALMONER_DATABASE_URL?", "OTEL_TRACES_SAMPLER_ARG must be a number",
			} {
				if code != 1 || out != "" || !strings.Contains(errs, want) {
					t.Errorf("%s %s does not print %s: %d %s%s", program, arguments, want, code, out, errs)
				}
			}
		}
		if _, errs, code := run([]string{"ALMONER_DATABSE_URL=hush"}, "migrate"); code != 1 ||
			!strings.Contains(errs, "2 mistakes") {
			t.Errorf("%s migrate: %d %s", program, code, errs)
		}
	}
}

// Every test that SPEC.md names exists, and every sentence has a test.
func TestSpec_EverySentenceNamesTest(t *testing.T) {
	t.Parallel()
	content := fileContent(t, "SPEC.md")
	exists := testsOfTheRepository(t)
	rows := 0
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| section ") {
			continue
		}
		rows++
		if len(cells) != 3 {
			t.Errorf("row without three cells: %s", line)
			continue
		}
		wantsTests(t, exists, cells[2])
	}
	if rows < 100 {
		t.Errorf("only %d sentences found", rows)
	}
}

// testName finds the name of a test, as folder.Name, or as Name for tests of this package.
var testName = regexp.MustCompile("`((?:\\w+\\.)?Test\\w+)`")

// wantsTests checks that a text names tests, and only existing ones.
func wantsTests(t *testing.T, exists map[string]bool, text string) {
	t.Helper()
	names := testName.FindAllStringSubmatch(text, -1)
	if len(names) == 0 {
		t.Errorf("no test is named: %s", text)
	}
	for _, name := range names {
		if !exists[name[1]] && !exists["e2e."+name[1]] {
			t.Errorf("%s does not exist: %s", name[1], text)
		}
	}
}

// testsOfTheRepository returns the names of the tests of every package, as folder.Name.
func testsOfTheRepository(t *testing.T) map[string]bool {
	t.Helper()
	exists, declaration := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, folder := range folders() {
		eachFile(t, folder, func(name string) {
			if strings.HasSuffix(name, "_test.go") {
				for _, found := range declaration.FindAllSubmatch(fileContent(t, name), -1) {
					exists[filepath.Base(filepath.Dir(name))+"."+string(found[1])] = true
				}
			}
		})
	}
	return exists
}
