package containers

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

// The settings that the compose file makes are such as our Caddyfile reads, and it is this one that Caddy reads.
func TestTheGatewayReadsOurCaddyfile(t *testing.T) {
	s := project(t).Services["gateway"]
	ours, err := filepath.Abs(root + "/deploy/gateway/Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	if mount := mounted(s, "/etc/caddy/Caddyfile"); mount.Source != ours || !mount.ReadOnly {
		t.Errorf("Caddy reads %+v", mount)
	}
	content, err := os.ReadFile(ours)
	if err != nil {
		t.Fatal(err)
	}
	for name := range s.Environment {
		if strings.HasPrefix(name, "GATEWAY_") && !bytes.Contains(content, []byte("{$"+name+"}")) &&
			!bytes.Contains(content, []byte("{$"+name+":")) {
			t.Errorf("the Caddyfile does not know %s", name)
		}
	}
	for published, name := range map[string]string{"80": "GATEWAY_HTTP_PORT", "443": "GATEWAY_HTTPS_PORT"} {
		i := slices.IndexFunc(s.Ports, func(p types.ServicePortConfig) bool { return p.Published == published })
		if i < 0 || strconv.Itoa(int(s.Ports[i].Target)) != setting(s, name) || s.Ports[i].Target < 1024 {
			t.Errorf("port %s: %+v, and Caddy listens at %s", published, s.Ports, setting(s, name))
		}
	}
	if test := s.HealthCheck.Test; test[len(test)-1] != setting(s, "GATEWAY_HTTPS_PORT") {
		t.Errorf("its health is asked by %v", test)
	}
}

// Certificates outlive the container: authorities give only so many in a week.
func TestTheGatewayKeepsItsCertificates(t *testing.T) {
	s := project(t).Services["gateway"]
	if mount := mounted(s, "/data/caddy"); mount.Type != types.VolumeTypeVolume || mount.Source == "" ||
		mount.ReadOnly ||
		s.Environment["XDG_DATA_HOME"] != nil {
		t.Errorf("where the image has Caddy keep them there is %+v", mount)
	}
}

// setting is a value in a service's environment; "-" for none.
func setting(s types.ServiceConfig, name string) string {
	if value := s.Environment[name]; value != nil {
		return *value
	}
	return "-"
}

func mounted(s types.ServiceConfig, target string) types.ServiceVolumeConfig {
	i := slices.IndexFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == target })
	if i < 0 {
		return types.ServiceVolumeConfig{}
	}
	return s.Volumes[i]
}

// Whoever names a collector has traces of all, and nobody else has any. Caddy before 2.11 may put queries into them,
// and sends them otherwise.
func TestTracesAreForThoseWhoNameACollector(t *testing.T) {
	const collector = "http://collector.internal:4318"
	for named, tracing := range map[string]string{"": "", collector: "tracing"} {
		p, err := load(t, append(answers(), "OTEL_EXPORTER_OTLP_ENDPOINT="+named, "OTEL_TRACES_SAMPLER_ARG=0.5"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{
			"gateway",
			"authserver-1",
			"authserver-2",
			"resourceapi-1",
			"resourceapi-2",
			"worker",
		} {
			endpoint, share := setting(
				p.Services[name],
				"OTEL_EXPORTER_OTLP_ENDPOINT",
			), setting(
				p.Services[name],
				"OTEL_TRACES_SAMPLER_ARG",
			)
			if endpoint != named || share != "0.5" {
				t.Errorf("with the collector %q, %s sends traces to %q, the share %s", named, name, endpoint, share)
			}
		}
		if got := setting(p.Services["gateway"], "GATEWAY_TRACING"); got != tracing {
			t.Errorf("with the collector %q, GATEWAY_TRACING is %q", named, got)
		}
	}
	if image := project(t).Services["gateway"].Image; !regexp.MustCompile(`^caddy:2\.(1[1-9]|[2-9][0-9])\.[0-9]+$`).
		MatchString(image) {
		t.Errorf("the gateway is %s", image)
	}
}

// The program in Caddy's image has the capability to use ports below 1024 as an attribute of its file. Another program
// with the same attribute starts with what the compose file gives the gateway, and does not without it. It has no
// capability then.
func TestTheGatewaysProgramStarts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives a file a capability")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(newDir(t), "cat")
	if err := copyFile(cat, file); err != nil {
		t.Fatal(err)
	}
	mayBindAnyPort(t, file)
	s := project(t).Services["gateway"]
	start := func(capabilities []string) (string, error) {
		bounding := "-all"
		for _, name := range capabilities {
			bounding += ",+" + strings.ToLower(name)
		}
		uid, gid, _ := strings.Cut(s.User, ":")
		// The shell between them has no capabilities any more, as an engine's process has none when it becomes the
		// container's program.
		said, err := exec.CommandContext(t.Context(), setpriv, "--reuid="+uid, "--regid="+gid, "--clear-groups", "--no-new-privs", "--inh-caps=-all",
			"--bounding-set="+bounding, "sh", "-c", file+" /proc/self/status").
			CombinedOutput()
		return string(said), err
	}
	if said, err := start(nil); err == nil {
		t.Skipf("this file system keeps no capabilities: %s", said)
	}
	said, err := start(s.CapAdd)
	if err != nil || !strings.Contains(said, "CapPrm:\t0000000000000000\n") ||
		!strings.Contains(said, "CapEff:\t0000000000000000\n") {
		t.Errorf("with %v: %v %s", s.CapAdd, err, said)
	}
}

// mayBindAnyPort does what `setcap cap_net_bind_service=+ep` does.
func mayBindAnyPort(t *testing.T, file string) {
	t.Helper()
	const ( // linux/capability.h
		revision2      = 0x02000000
		effective      = 1
		netBindService = 10
	)
	var attribute []byte
	for _, word := range []uint32{revision2 | effective, 1 << netBindService, 0, 0, 0} {
		attribute = binary.LittleEndian.AppendUint32(attribute, word)
	}
	if err := syscall.Setxattr(file, "security.capability", attribute, 0); err != nil {
		t.Skipf("this file system keeps no capabilities: %v", err)
	}
}
