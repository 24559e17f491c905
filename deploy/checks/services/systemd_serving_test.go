package services

import (
	"bytes"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
)

// secretFiles returns the files of secrets that security.md describes.
func secretFiles(t *testing.T) map[string]string {
	t.Helper()
	stores := newStores(t)
	return map[string]string{
		"owner-database-url":       stores["owner"],
		"authserver-database-url":  stores["authserver"],
		"resourceapi-database-url": stores["resourceapi"],
		"redis-url":                stores["authserver redis"],
		"resourceapi-redis-url":    stores["resourceapi redis"],
		"authserver-keys":          newKey(),
		"resourceapi-keys":         newKey(),
	}
}

// load writes the credentials of a unit to a folder, as systemd does.
func (s service) load(t *testing.T, secrets map[string]string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, file := range s.loaded(t) {
		if secrets[file] == "" {
			t.Errorf("%s: security.md does not describe the secret %s", s.file, file)
		}
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(secrets[file]+"\n"), 0o600))
	}
	return folder
}

// TestUnits_StartReadyServices starts the real binaries as the units say, with real stores: the migration
// succeeds, and the services know every setting and become ready.
func TestUnits_StartReadyServices(t *testing.T) {
	t.Parallel()
	secrets, ports, moved := secretFiles(t), map[string]string{}, map[string]string{}
	for _, s := range services(t) { // almoner-migrate comes first
		var used []string
		for _, c := range s.commands(t, s.load(t, secrets)) {
			c.IsOffered(t, s.file)
			for name, value := range c.Environment {
				if strings.HasSuffix(name, "_FILE") {
					used = append(used, filepath.Base(value))
				}
			}
			if c.Arguments[0] == "migrate" {
				if out, err := c.Run(t, c.Arguments...); err != nil {
					t.Errorf("%s: %v: %s", s.file, err, out)
				}
				continue
			}
			s.becomesReady(t, c, ports, moved)
		}
		if slices.Sort(used); !slices.Equal(slices.Compact(used), slices.Sorted(maps.Keys(s.loaded(t)))) {
			t.Errorf("%s: it loads the credentials %q, and its settings name %q", s.file,
				slices.Sorted(maps.Keys(s.loaded(t))), used)
		}
	}
}

// becomesReady starts a service. ports are the ports in use by other services; moved maps configured addresses to those
// used here.
func (s service) becomesReady(t *testing.T, c invocation, ports, moved map[string]string) {
	t.Helper()
	if keys, err := url.Parse(c.Environment["ALMONER_JWKS_URL"]); err != nil {
		t.Errorf("%s: %v", s.file, err)
	} else if moved[keys.Host] != "" {
		keys.Host = moved[keys.Host]
		c = c.With(map[string]string{"ALMONER_JWKS_URL": keys.String()})
	}
	s.hasTimeToLeave(t, c.Arguments[0], c.Settings(t, s.file)["ALMONER_NOTICE"])
	process := c.Start(t)
	for name, address := range process.Addresses {
		moved[c.Environment[name]] = address
		host, port, err := net.SplitHostPort(c.Environment[name])
		if err != nil || host != "127.0.0.1" {
			t.Errorf("%s: %s=%s is not a loopback address", s.file, name, c.Environment[name])
		}
		if ports[port] != "" {
			t.Errorf("%s: %s already listens on port %s", s.file, ports[port], port)
		}
		ports[port] = s.file
	}
	address := process.Addresses["ALMONER_LISTEN"]
	if c.Arguments[0] == "worker" {
		address = process.Addresses["ALMONER_WORKER_LISTEN"]
	}
	if after := s.afterStart(t); (s.instance != "") != (after != nil) {
		t.Errorf("%s: ExecStartPost is %q", s.file, after)
	} else if after != nil {
		if out, err := c.With(process.Addresses).Run(t, after...); err != nil {
			t.Errorf("%s: %v: %s", s.file, err, out)
		}
	}
	for _, at := range []string{address + "/readyz", process.Addresses["ALMONER_METRICS_LISTEN"] + "/metrics"} {
		process.Becomes(t, "http://"+at, http.StatusOK)
	}
}

// TestGateways_ListBothProcesses checks that nginx.conf and the drop-in of Caddy's unit list the addresses of both
// instances of each service. Otherwise requests would fail while one instance restarts.
func TestGateways_ListBothProcesses(t *testing.T) {
	t.Parallel()
	want := map[string][]string{}
	for _, s := range services(t) {
		if s.instance != "" {
			c := s.commands(t, "")[0]
			want[c.Binary] = append(want[c.Binary], c.Environment["ALMONER_LISTEN"])
		}
	}
	if len(want["authserver"]) != 2 || len(want["resourceapi"]) != 2 {
		t.Fatalf("the units have %q", want)
	}
	nginx, err := os.ReadFile(filepath.Join(repository(), "deploy", "gateway", "nginx.conf"))
	must(t, err)
	dropIn, err := os.ReadFile(filepath.Join(folder(), "caddy.service.d", "almoner.conf"))
	must(t, err)
	options, err := unit.DeserializeOptions(bytes.NewReader(dropIn))
	must(t, err)
	for service, variable := range map[string]string{
		"authserver":  "GATEWAY_AUTHSERVERS",
		"resourceapi": "GATEWAY_RESOURCEAPIS",
	} {
		block := regexp.MustCompile(`(?s)upstream ` + service + ` \{(.*?)\}`).FindSubmatch(nginx)
		if block == nil {
			t.Errorf("nginx.conf has no upstream %s", service)
			continue
		}
		var found []string
		for _, server := range regexp.MustCompile(`server (\S+) max_fails=0;`).FindAllSubmatch(block[1], -1) {
			found = append(found, string(server[1]))
		}
		if !slices.Equal(found, want[service]) {
			t.Errorf("nginx.conf sends requests for %s to %q; its units listen on %q", service, found, want[service])
		}
		at := slices.IndexFunc(options, func(o *unit.UnitOption) bool {
			return strings.HasPrefix(o.Value, `"`+variable+`=`)
		})
		if at < 0 {
			t.Errorf("Caddy's unit does not set %s", variable)
			continue
		}
		value := strings.TrimSuffix(strings.TrimPrefix(options[at].Value, `"`+variable+`=`), `"`)
		if !slices.Equal(strings.Fields(value), want[service]) {
			t.Errorf("Caddy sends requests for %s to %q; its units listen on %q", service, value, want[service])
		}
	}
}
