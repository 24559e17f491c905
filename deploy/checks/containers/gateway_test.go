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

// TestCompose_GatewayReadsOurCaddyfile checks that Caddy reads our Caddyfile and that the Caddyfile uses every setting
// of the compose file.
func TestCompose_GatewayReadsOurCaddyfile(t *testing.T) {
	s := project(t).Services["gateway"]
	ours, err := filepath.Abs(root + "/deploy/gateway/Caddyfile")
	must(t, err)
	if mount := mounted(s, "/etc/caddy/Caddyfile"); mount.Source != ours || !mount.ReadOnly {
		t.Errorf("Caddy reads %+v", mount)
	}
	content, err := os.ReadFile(ours)
	must(t, err)
	for name := range s.Environment {
		if strings.HasPrefix(name, "GATEWAY_") && !bytes.Contains(content, []byte("{$"+name+"}")) &&
			!bytes.Contains(content, []byte("{$"+name+":")) {
			t.Errorf("the Caddyfile does not use %s", name)
		}
	}
	for published, name := range map[string]string{"80": "GATEWAY_HTTP_PORT", "443": "GATEWAY_HTTPS_PORT"} {
		i := slices.IndexFunc(s.Ports, func(p types.ServicePortConfig) bool { return p.Published == published })
		if i < 0 || strconv.Itoa(int(s.Ports[i].Target)) != setting(s, name) || s.Ports[i].Target < 1024 {
			t.Errorf("port %s: %+v, but Caddy listens on %s", published, s.Ports, setting(s, name))
		}
	}
	if test := s.HealthCheck.Test; test[len(test)-1] != setting(s, "GATEWAY_HTTPS_PORT") {
		t.Errorf("its health check is %v", test)
	}
}

// TestCompose_GatewayCertificatesOutliveTheContainer checks that certificates outlive the container: authorities limit
// how many they issue in a week.
func TestCompose_GatewayCertificatesOutliveTheContainer(t *testing.T) {
	s := project(t).Services["gateway"]
	if mount := mounted(s, "/data/caddy"); mount.Type != types.VolumeTypeVolume || mount.Source == "" ||
		mount.ReadOnly || s.Environment["XDG_DATA_HOME"] != nil {
		t.Errorf("the mount of Caddy's data directory is %+v", mount)
	}
}

// setting returns a value in a service's environment, or "-" if it is not set.
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

// TestCompose_TracesNeedACollector checks that traces are sent only if a collector is set. Caddy before 2.11 may
// put queries into traces, and sends them without a collector too.
func TestCompose_TracesNeedACollector(t *testing.T) {
	const collector = "http://collector.internal:4318"
	for named, tracing := range map[string]string{"": "", collector: "tracing"} {
		p, err := load(t, append(answers(), "OTEL_EXPORTER_OTLP_ENDPOINT="+named, "OTEL_TRACES_SAMPLER_ARG=0.5"))
		must(t, err)
		for _, name := range []string{
			"gateway", "authserver-1", "authserver-2", "resourceapi-1", "resourceapi-2", "worker",
		} {
			endpoint := setting(p.Services[name], "OTEL_EXPORTER_OTLP_ENDPOINT")
			share := setting(p.Services[name], "OTEL_TRACES_SAMPLER_ARG")
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
		t.Errorf("the gateway's image is %s", image)
	}
}

// TestCompose_GatewayProgramStartsWithItsCapability uses that Caddy's program has the capability for ports below 1024
// as an attribute of its file. Another program with that attribute must start with the capabilities that the compose
// file allows, and must not start without them. It has no capability itself then.
func TestCompose_GatewayProgramStartsWithItsCapability(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file a capability")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	cat, err := exec.LookPath("cat")
	must(t, err)
	file := filepath.Join(newDir(t), "cat")
	must(t, copyFile(cat, file))
	mayBindAnyPort(t, file)
	s := project(t).Services["gateway"]
	start := func(capabilities []string) (string, error) {
		bounding := "-all"
		for _, name := range capabilities {
			bounding += ",+" + strings.ToLower(name)
		}
		uid, gid, _ := strings.Cut(s.User, ":")
		// The shell in between has no capabilities, like an engine's process when it executes the container's program.
		command := exec.CommandContext(t.Context(), setpriv, "--reuid="+uid, "--regid="+gid, "--clear-groups",
			"--no-new-privs", "--inh-caps=-all", "--bounding-set="+bounding, "sh", "-c", file+" /proc/self/status")
		output, err := command.CombinedOutput()
		return string(output), err
	}
	if output, err := start(nil); err == nil {
		t.Skipf("this file system has no capabilities: %s", output)
	}
	output, err := start(s.CapAdd)
	if err != nil || !strings.Contains(output, "CapPrm:\t0000000000000000\n") ||
		!strings.Contains(output, "CapEff:\t0000000000000000\n") {
		t.Errorf("with %v: %v %s", s.CapAdd, err, output)
	}
}

// mayBindAnyPort sets the attribute that `setcap cap_net_bind_service=+ep` sets.
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
		t.Skipf("this file system has no capabilities: %v", err)
	}
}
