package services

import (
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestManifests_StartHealthyServices starts the real binaries as the manifests say, with real stores: the Job
// succeeds, every probe succeeds, and every port is listened on.
func TestManifests_StartHealthyServices(t *testing.T) {
	t.Parallel()
	stores := newStores(t)
	c := example(t)
	put := func(command invocation, of string) {
		t.Helper()
		for name, value := range map[string]string{
			"ALMONER_DATABASE_URL_FILE": stores[of],
			"ALMONER_REDIS_URL_FILE":    stores[of+" redis"],
		} {
			path := command.Environment[name]
			if path == "" {
				continue
			}
			must(t, os.WriteFile(path, []byte(value), 0o600))
		}
	}
	for _, job := range c.jobs {
		for _, container := range (workload{template: job.Spec.Template}).containers() {
			command := c.inPlace(t, job.Namespace, job.Spec.Template.Spec, container)
			put(command, "owner")
			if out, err := command.Run(t, command.Arguments...); err != nil {
				t.Errorf("%s/%s: %v: %s", job.Name, container.Name, err, out)
			}
		}
	}
	keys := ""
	for _, d := range c.deployments {
		container := d.Spec.Template.Spec.Containers[0]
		command := c.inPlace(t, d.Namespace, d.Spec.Template.Spec, container)
		put(command, command.Binary)
		if command.Environment["ALMONER_JWKS_URL"] != "" {
			command = command.With(map[string]string{"ALMONER_JWKS_URL": keys}) // the address behind the Service
		}
		listens := map[string]string{} // port of the manifest → address here
		process := command.Start(t)
		for name, address := range process.Addresses {
			listens[portIn(t, command.Environment[name])] = address
		}
		if d.Name == "authserver" {
			keys = "http://" + listens["8081"] + "/v1/account/oauth/jwks"
		}
		declared := map[string]bool{}
		for _, port := range container.Ports {
			number := strconv.Itoa(int(port.ContainerPort))
			declared[number] = true
			if listens[number] == "" {
				t.Errorf("%s listens on no port %s", d.Name, number)
			}
		}
		for number := range maps.Keys(listens) {
			if !declared[number] {
				t.Errorf("%s listens on port %s, which is not declared", d.Name, number)
			}
		}
		probe(t, process, container, listens)
		metrics := "http://" + process.Addresses["ALMONER_METRICS_LISTEN"] + "/metrics"
		if err := process.Becomes(metrics, http.StatusOK); err != nil {
			t.Errorf("%s: its metrics: %v", d.Name, err)
		}
	}
}

func portIn(t *testing.T, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "" {
		t.Errorf("a pod must listen on every address, not on %s", address)
	}
	return port
}

func probe(t *testing.T, process *startedProcess, container core.Container, listens map[string]string) {
	t.Helper()
	for what, probe := range map[string]*core.Probe{
		"startup":   container.StartupProbe,
		"liveness":  container.LivenessProbe,
		"readiness": container.ReadinessProbe,
	} {
		if probe == nil {
			if len(container.Ports) > 0 {
				t.Errorf("%s has no %s probe", container.Name, what)
			}
			continue
		}
		ask := probe.HTTPGet
		address := listens[number(container, ask.Port)]
		if want := map[bool]string{true: "/readyz", false: "/healthz"}[what == "readiness"]; ask.Path != want {
			t.Errorf("%s: the path of the %s probe is %s", container.Name, what, ask.Path)
		}
		if address == "" {
			t.Errorf("%s: nothing listens on port %s of the %s probe", container.Name, ask.Port.String(), what)
			continue
		}
		if err := process.Becomes("http://"+address+ask.Path, http.StatusOK); err != nil {
			t.Errorf("%s: the %s probe: %v", container.Name, what, err)
		}
	}
}

func number(container core.Container, port intstr.IntOrString) string {
	for _, declared := range container.Ports {
		if declared.Name == port.StrVal {
			return strconv.Itoa(int(declared.ContainerPort))
		}
	}
	return port.String()
}
