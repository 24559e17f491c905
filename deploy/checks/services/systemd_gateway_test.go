package services

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
)

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
