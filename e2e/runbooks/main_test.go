// Package runbooks tests the pages of deploy/runbooks, and deploy/docs/recovery.md.
//
// Each test runs the blocks of pages unchanged against real servers and the two binaries. What a page leaves to the
// operator's installation, such as stopping a service, the test does between the blocks. Every block is run by at
// least one test.
package runbooks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// met are the secrets that the tests of this process have used.
var met harness.Secrets

func TestMain(m *testing.M) {
	code := harness.Main(m, 5)
	if code == 0 && harness.EverythingRan() {
		code = checkEveryBlockWasRun()
	}
	os.Exit(code)
}

func checkEveryBlockWasRun() (code int) {
	missing, err := unrunBlocks()
	if err != nil || len(missing) > 0 {
		fmt.Println("FAIL: no test runs", missing, err)
		return 1
	}
	return 0
}

const (
	folder = "../../deploy/runbooks"
	// recovery is the page of commands outside the folder.
	recovery = "../docs/recovery.md"
)

// A block is a block of shell commands in a page.
type block struct {
	name       string // run=…
	asPostgres bool
	text       string
}

var (
	fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")
	info  = regexp.MustCompile(`^sh run=([a-z-]+)( as=postgres)?$`)
)

// blocks returns the blocks of a page that are to be run.
func blocks(page string) ([]block, error) {
	content, err := os.ReadFile(filepath.Join(folder, page))
	if err != nil {
		return nil, err
	}
	var found []block
	for _, match := range fence.FindAllSubmatch(content, -1) {
		kind := string(match[1])
		if kind == "sh by-hand" || kind == "conf" {
			continue
		}
		parts := info.FindStringSubmatch(kind)
		if parts == nil {
			return nil, fmt.Errorf("%s: a block is neither run nor by-hand: %q", page, kind)
		}
		found = append(found, block{parts[1], parts[2] != "", string(match[2])})
	}
	return found, nil
}

// blockOf returns one block of a page.
func blockOf(t *testing.T, page, name string) block {
	t.Helper()
	all, err := blocks(page)
	must(t, err)
	at := slices.IndexFunc(all, func(b block) bool { return b.name == name })
	if at < 0 {
		t.Fatalf("%s has no block %s", page, name)
	}
	return all[at]
}

// executed contains the blocks that were run, as page#name.
var executed sync.Map

// pages returns the pages of the folder.
func pages() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.md"))
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return paths, err
}

// pagesWithCommands returns the pages whose blocks the tests run.
func pagesWithCommands() ([]string, error) {
	all, err := pages()
	return append(all, recovery), err
}

// unrunBlocks returns the blocks that no test has run.
func unrunBlocks() ([]string, error) {
	all, err := pagesWithCommands()
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, page := range all {
		found, err := blocks(page)
		if err != nil {
			return nil, err
		}
		for _, b := range found {
			if _, done := executed.Load(page + "#" + b.name); !done {
				missing = append(missing, page+"#"+b.name)
			}
		}
	}
	return missing, nil
}

// Arguments are visible to all users of the machine (ps) and stored in the shell's history.
func TestPages_NoSecretInArguments(t *testing.T) {
	all, err := pagesWithCommands()
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range all {
		content, err := os.ReadFile(filepath.Join(folder, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range fence.FindAllSubmatch(content, -1) {
			for _, sign := range []string{
				"postgres://", "postgresql://", "redis-cli -a", "--pass", "PGPASSWORD=", "curl -u", `-H "Authorization`,
				`-H 'Authorization`,
			} {
				if strings.Contains(string(match[2]), sign) {
					t.Errorf("%s: %q in a block", page, sign)
				}
			}
		}
	}
}

// Every page is linked from the first one, and every link has a target.
func TestPages_LinksHaveTargets(t *testing.T) {
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	linked := []string{"README.md", "after-restore.md"} // after-restore.md is linked from other pages
	for _, page := range all {
		content, err := os.ReadFile(filepath.Join(folder, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`\]\(([^)#:]+)(#([^)]+))?\)`).FindAllSubmatch(content, -1) {
			target, err := os.ReadFile(filepath.Join(folder, string(match[1])))
			if err != nil {
				t.Errorf("%s: %v", page, err)
			}
			if anchor := string(match[3]); anchor != "" && !slices.Contains(anchors(string(target)), anchor) {
				t.Errorf("%s: %s has no heading #%s", page, match[1], anchor)
			}
			if page == "README.md" {
				linked = append(linked, string(match[1]))
			}
		}
	}
	for _, page := range all {
		if !slices.Contains(linked, page) {
			t.Errorf("README.md has no link to %s", page)
		}
	}
}

// anchors returns the anchors that GitHub generates for headings.
func anchors(page string) []string {
	var found []string
	for _, match := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		plain := regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(strings.ToLower(match[1]), "")
		found = append(found, strings.ReplaceAll(plain, " ", "-"))
	}
	return found
}
