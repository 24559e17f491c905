package e2e

import (
	"bytes"
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
		content, err := os.ReadFile(filepath.Join("..", page))
		must(t, err)
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
				text, err := os.ReadFile(target)
				must(t, err)
				if !slices.Contains(headings(text), anchor) {
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
	overview, err := os.ReadFile("../deploy/README.md")
	must(t, err)
	pages, err := filepath.Glob("../deploy/docs/*.md")
	must(t, err)
	pages = append(pages, "../deploy/README.md", "../deploy/UPGRADING.md")
	for _, page := range pages {
		content, err := os.ReadFile(page)
		must(t, err)
		if lines := bytes.Count(content, []byte("\n")); lines > 150 {
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
