package services

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	release "github.com/almonerhq/almoner/shared/net/version"
)

var must = testkit.Must

// releaseVariable names the directory with the release, for the part of the test that runs in the namespaces.
const releaseVariable = "ALMONER_TEST_RELEASE"

var (
	pageBlocks = regexp.MustCompile("(?ms)^```sh run=([a-z-]+)\n(.*?)^```$")
	resetLink  = regexp.MustCompile(`https://\S+`)
)

// TestOneMachine_PageLeadsToSignIn runs the blocks of one-machine.md on a machine that has only Debian's packages, up
// to a sign-in through Caddy (F93). The machine is this one in namespaces of its own: its processes, ports and files
// are separate, and what is written to it disappears. In place of systemd, the test's systemctl runs the units.
func TestOneMachine_PageLeadsToSignIn(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(releaseVariable); dir != "" {
		runPage(t, dir)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	for program := range strings.FieldsSeq("unshare setpriv runuser caddy redis-server pg_createcluster curl") {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	isolate := []string{"--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"}
	if out, err := exec.Command("unshare", append(isolate, "true")...).CombinedOutput(); err != nil {
		t.Skipf("the kernel refuses namespaces: %s", out)
	}
	dir, err := localstore.TempDir("almoner-onemachine-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	folder := filepath.Join(dir, "almoner-"+release.Number)
	must(t, os.CopyFS(folder, os.DirFS(filepath.Join(repository(), "deploy"))))
	architecture, err := exec.Command("dpkg", "--print-architecture").Output()
	must(t, err)
	for _, program := range []string{"authserver", "resourceapi"} {
		must(t, os.Symlink(invocation{Binary: program}.Path(t),
			filepath.Join(dir, program+"-"+release.Number+"-linux-"+strings.TrimSpace(string(architecture)))))
	}
	inside := append(isolate, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	command := exec.CommandContext(t.Context(), "unshare", inside...)
	command.Env = append(os.Environ(), releaseVariable+"="+dir)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// runPage is the part that runs in the namespaces.
func runPage(t *testing.T, dir string) {
	t.Helper()
	hideInstallation(t, dir)
	content, err := os.ReadFile(filepath.Join(dir, "almoner-"+release.Number, "docs", "one-machine.md"))
	must(t, err)
	var script strings.Builder
	for _, block := range pageBlocks.FindAllStringSubmatch(string(content), -1) {
		script.WriteString(block[2] + "\n[ $? = 0 ] || { echo block " + block[1] + " failed >&2; exit 1; }\n")
	}
	shell := exec.CommandContext(t.Context(), "bash")
	shell.Dir, shell.Stdin = filepath.Join(dir, "almoner-"+release.Number), strings.NewReader(script.String())
	var printed, complained bytes.Buffer
	shell.Stdout, shell.Stderr = &printed, &complained
	if err := shell.Run(); err != nil {
		t.Fatalf("%v\n%s%s%s", err, printed.String(), complained.String(), logs())
	}
	if !strings.Contains(printed.String(), "Both hosts answer.") {
		t.Errorf("the hosts do not answer:\n%s%s", printed.String(), complained.String())
	}
	links := resetLink.FindAllString(printed.String(), -1)
	if len(links) != 1 {
		t.Fatalf("want one link to set a password:\n%s%s", printed.String(), complained.String())
	}
	setPasswordAndSignIn(t, links[0])
	wantSetupRepeatable(t, dir)
	wantPasswordsReplaceable(t, dir)
}

// hideInstallation hides what is installed here except Debian's packages, and starts their services, as installing the
// packages does.
func hideInstallation(t *testing.T, dir string) {
	t.Helper()
	layers := filepath.Join(dir, "layers")
	must(t, os.Mkdir(layers, 0o755))
	run(t, "mount", "-t", "tmpfs", "tmpfs", layers)
	for _, top := range []string{"/etc", "/usr", "/var", "/root"} {
		upper, work := filepath.Join(layers, "upper"+top), filepath.Join(layers, "work"+top)
		must(t, os.MkdirAll(upper, 0o755))
		must(t, os.MkdirAll(work, 0o755))
		run(t, "mount", "-t", "overlay", "overlay", "-o", "lowerdir="+top+",upperdir="+upper+",workdir="+work, top)
	}
	run(t, "mount", "-t", "tmpfs", "tmpfs", "/run")
	for _, left := range []string{"/etc/almoner", "/var/backups/almoner", "/etc/systemd/system/caddy.service.d"} {
		must(t, os.RemoveAll(left))
	}
	must(t, raiseLoopback())
	hosts := "127.0.0.1 localhost api.example.org app.example.org\n"
	must(t, os.WriteFile("/etc/hosts", []byte(hosts), 0o644))
	for _, unit := range []string{"authserver@", "resourceapi@"} { // no gateway sends requests to a leaving process
		dropIns := "/etc/systemd/system/" + unit + ".service.d"
		must(t, os.MkdirAll(dropIns, 0o755))
		notice := []byte("[Service]\nEnvironment=ALMONER_NOTICE=0s\n")
		must(t, os.WriteFile(filepath.Join(dropIns, "notice.conf"), notice, 0o644))
	}
	must(t, os.MkdirAll("/usr/local/sbin", 0o755))
	systemctl := "#!/bin/sh\n" + systemctlVariable + "=1 exec " + os.Args[0] + " \"$@\"\n"
	must(t, os.WriteFile("/usr/local/sbin/systemctl", []byte(systemctl), 0o755))
	must(t, os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"))

	versions, err := os.ReadDir("/usr/lib/postgresql")
	must(t, err)
	newest := versions[len(versions)-1].Name()
	for _, left := range []string{"/etc/postgresql", "/var/lib/postgresql", "/var/lib/redis", "/var/lib/caddy"} {
		owner := "root"
		if base := filepath.Base(left); left != "/etc/postgresql" {
			owner = strings.Replace(base, "postgresql", "postgres", 1)
		}
		must(t, os.RemoveAll(left))
		run(t, "install", "-d", "-o", owner, left)
	}
	run(t, "install", "-d", "-o", "postgres", "-m", "2775", "/run/postgresql")
	run(t, "pg_createcluster", newest, "main")
	run(t, "pg_ctlcluster", newest, "main", "start")
	run(t, "systemctl", "start", "redis-server")
}

// run runs a program. Its output is in a file, because a server that it starts keeps a pipe open.
func run(t *testing.T, program string, arguments ...string) {
	t.Helper()
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	must(t, err)
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Stdout, command.Stderr = output, output
	if err := command.Run(); err != nil {
		content, _ := os.ReadFile(output.Name())
		t.Fatalf("%s %s: %v: %s", program, strings.Join(arguments, " "), err, content)
	}
	must(t, output.Close())
}

// raiseLoopback makes the loopback interface of a new network namespace usable (netdevice(7)).
func raiseLoopback() error {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(socket) }()
	request := struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP}
	copy(request.name[:], "lo")
	_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, uintptr(socket), syscall.SIOCSIFFLAGS,
		uintptr(unsafe.Pointer(&request)))
	if failed != 0 {
		return failed
	}
	return nil
}

// setPasswordAndSignIn opens the link, sets a password and signs in, as a browser does that knows Caddy's authority.
func setPasswordAndSignIn(t *testing.T, link string) {
	t.Helper()
	authority, err := os.ReadFile("/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt")
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	jar, err := cookiejar.New(nil)
	must(t, err)
	browser := &http.Client{
		Jar:       jar,
		Timeout:   time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
	}
	const password = "four unrelated plain words"
	page := read(t)(browser.Get(link))
	page = submit(t, browser, page, "/login/reset", url.Values{"new-password": {password}}) // and signs in
	if !strings.Contains(page, "Ada Brown") || !strings.Contains(page, "Harbour Trust") {
		t.Errorf("the user is not signed in:\n%s", page)
	}
}

func read(t *testing.T) func(*http.Response, error) string {
	t.Helper()
	return func(response *http.Response, err error) string {
		t.Helper()
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		must(t, err)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s\n%s", response.Request.URL.Path, response.Status, body)
		}
		return string(body)
	}
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)

// submit sends a form of a page with its hidden fields, and returns the page that follows.
func submit(t *testing.T, browser *http.Client, page, action string, fields url.Values) string {
	t.Helper()
	_, form, found := strings.Cut(page, `action="`+action+`"`)
	if !found {
		t.Fatalf("there is no form for %s:\n%s", action, page)
	}
	form, _, _ = strings.Cut(form, "</form>")
	for _, field := range hidden.FindAllStringSubmatch(form, -1) {
		fields.Add(field[1], html.UnescapeString(field[2]))
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://app.example.org"+action,
		strings.NewReader(fields.Encode()))
	must(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", "https://app.example.org")
	return read(t)(browser.Do(request))
}

// wantSetupRepeatable checks that setup.sh, run again, keeps every file, and that other users cannot read the secrets.
func wantSetupRepeatable(t *testing.T, dir string) {
	t.Helper()
	digest := func() string {
		out, err := exec.CommandContext(t.Context(), "sh", "-c",
			"find /etc/almoner /etc/redis -type f | sort | xargs sha256sum").Output()
		must(t, err)
		return string(out)
	}
	before := digest()
	shell := exec.CommandContext(t.Context(), "./setup.sh", "systemd", "api.example.org", "app.example.org")
	shell.Dir = filepath.Join(dir, "almoner-"+release.Number)
	if out, err := shell.CombinedOutput(); err != nil {
		t.Errorf("setup.sh fails when it is run again: %v: %s", err, out)
	}
	if digest() != before {
		t.Error("setup.sh changes what it made before")
	}
	otherUser := exec.CommandContext(t.Context(), "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh",
		"-c",
		"cat /etc/almoner/secrets/* /etc/almoner/pgpass* /etc/redis/*.acl /var/backups/almoner/* 2>/dev/null | wc -c")
	if out, err := otherUser.Output(); err != nil || strings.TrimSpace(string(out)) != "0" {
		t.Errorf("other users can read secrets: %s bytes (%v)", out, err)
	}
}

// wantPasswordsReplaceable replaces the Redis passwords of both services as the runbook says. Redis and the services
// start with the new ones.
func wantPasswordsReplaceable(t *testing.T, dir string) {
	t.Helper()
	block := func(page, name string) string {
		content, err := os.ReadFile(filepath.Join(dir, "almoner-"+release.Number, "runbooks", page))
		must(t, err)
		for _, block := range pageBlocks.FindAllStringSubmatch(string(content), -1) {
			if block[1] == name {
				return block[2]
			}
		}
		t.Fatalf("%s has no block %s", page, name)
		return ""
	}
	script := "set -e\n" + block("README.md", "begin")
	for _, service := range []string{"authserver", "resourceapi"} {
		script += "SERVICE=" + service + "\n" + block("store-passwords.md", "redis-password") +
			block("store-passwords.md", "redis-old-password-out")
	}
	script += block("store-passwords.md", "redis-operator-password") +
		"systemctl restart redis-server authserver@1 authserver@2 resourceapi@1\n" +
		"for port in 8181 8182; do curl -fsS http://127.0.0.1:$port/readyz; done\n"
	shell := exec.CommandContext(t.Context(), "bash")
	shell.Stdin = strings.NewReader(script)
	if out, err := shell.CombinedOutput(); err != nil || strings.Count(string(out), `"redis":"ok"`) < 4 {
		t.Errorf("the passwords of Redis: %v\n%s%s", err, out, logs())
	}
}

// logs returns what the services wrote.
func logs() string {
	files, _ := filepath.Glob(logFolder + "/*")
	var all strings.Builder
	for _, file := range files {
		content, _ := os.ReadFile(file)
		all.WriteString(file + ":\n" + string(content[max(0, len(content)-2000):]) + "\n")
	}
	return all.String()
}
