package services

import (
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// command returns the command of a container. The binary is the entry point of its image.
func (c cluster) command(t *testing.T, namespace string, container core.Container) invocation {
	t.Helper()
	binary, _, _ := strings.Cut(path.Base(container.Image), ":")
	environment := map[string]string{}
	for _, from := range container.EnvFrom {
		config := c.config(t, namespace, from.ConfigMapRef.Name)
		for name, value := range config.Data {
			environment[name] = value
		}
	}
	for _, variable := range container.Env {
		if variable.ValueFrom != nil {
			t.Errorf("%s: the value of %s is not in the manifest", container.Name, variable.Name)
		}
		if _, twice := environment[variable.Name]; twice {
			t.Errorf("%s: %s is set twice", container.Name, variable.Name)
		}
		environment[variable.Name] = variable.Value
	}
	return invocation{Binary: binary, Arguments: container.Args, Environment: environment}
}

func (c cluster) config(t *testing.T, namespace, name string) core.ConfigMap {
	t.Helper()
	return find(t, "ConfigMap "+namespace+"/"+name, c.configs, func(config core.ConfigMap) bool {
		return config.Namespace == namespace && config.Name == name
	})
}

func (c cluster) secret(t *testing.T, namespace, name string) core.Secret {
	t.Helper()
	return find(t, "Secret "+namespace+"/"+name, c.secrets, func(secret core.Secret) bool {
		return secret.Namespace == namespace && secret.Name == name
	})
}

// mounted writes the Secrets that a container mounts to directories and returns these by mount path.
func (c cluster) mounted(t *testing.T, namespace string, pod core.PodSpec, container core.Container) map[string]string {
	t.Helper()
	places := map[string]string{}
	for _, mount := range container.VolumeMounts {
		for _, volume := range pod.Volumes {
			if volume.Name != mount.Name {
				continue
			}
			if volume.Secret == nil || volume.Secret.DefaultMode == nil || *volume.Secret.DefaultMode != 0o440 ||
				!mount.ReadOnly {
				t.Errorf("%s: %s is not a Secret that only its group can read", container.Name, volume.Name)
				continue
			}
			places[mount.MountPath] = t.TempDir()
			for key, value := range c.secret(t, namespace, volume.Secret.SecretName).Data {
				must(t, os.WriteFile(filepath.Join(places[mount.MountPath], key), value, 0o600))
			}
		}
	}
	return places
}

// each calls do for every container with its command and its secrets in place.
func (c cluster) each(t *testing.T, do func(name string, command invocation)) {
	t.Helper()
	for _, d := range c.deployments {
		for _, container := range d.Spec.Template.Spec.Containers {
			do(d.Name, c.inPlace(t, d.Namespace, d.Spec.Template.Spec, container))
		}
	}
	for _, j := range c.jobs {
		for _, container := range (workload{template: j.Spec.Template}).containers() {
			do(j.Name+"/"+container.Name, c.inPlace(t, j.Namespace, j.Spec.Template.Spec, container))
		}
	}
}

func (c cluster) inPlace(t *testing.T, namespace string, pod core.PodSpec, container core.Container) invocation {
	t.Helper()
	command := c.command(t, namespace, container)
	for from, to := range c.mounted(t, namespace, pod, container) {
		command = command.WithFilesAt(from, to)
	}
	return command
}

func TestSettings_AreKnownToTheBinaries(t *testing.T) {
	t.Parallel()
	example(t).each(t, func(name string, command invocation) {
		command.IsOffered(t, name)
		for variable, file := range command.Environment {
			if _, err := os.Stat(file); strings.HasSuffix(variable, "_FILE") && err != nil {
				t.Errorf("%s: no Secret holds the file of %s: %v", name, variable, err)
			}
		}
		asked := command
		if command.Arguments[0] == "migrate" { // has only one of the settings that check-config needs
			asked = command.With(map[string]string{
				"ALMONER_BASE_URL": "https://api.example.org", "ALMONER_APP_URL": "https://app.example.org",
				"ALMONER_KEYS": newKey(), "ALMONER_REDIS_URL": "redis://stores.invalid:6379",
			})
			if len(command.Environment) != 2 || command.Environment["ALMONER_DATABASE_URL_FILE"] == "" {
				t.Errorf("%s: migrate needs the owner's database and nothing else", name)
			}
		}
		asked.Settings(t, name)
	})
}

func TestSettings_OnlyTheWorkerProcessesSubmissions(t *testing.T) {
	t.Parallel()
	example(t).each(t, func(name string, command invocation) {
		if name == "resourceapi" && command.Environment["ALMONER_WORKER"] != "false" {
			t.Errorf("resourceapi: ALMONER_WORKER is %q", command.Environment["ALMONER_WORKER"])
		}
	})
}

// TestMigration_CanBeAppliedFirst checks that -l app.kubernetes.io/name=migrate selects everything that the Job
// needs.
func TestMigration_CanBeAppliedFirst(t *testing.T) {
	t.Parallel()
	c := example(t)
	for _, j := range c.jobs {
		label := j.Labels["app.kubernetes.io/name"]
		if label != "migrate" {
			t.Errorf("Job %s is not selected", j.Name)
		}
		for _, volume := range j.Spec.Template.Spec.Volumes {
			secret := c.secret(t, j.Namespace, volume.Secret.SecretName)
			if secret.Labels["app.kubernetes.io/name"] != label {
				t.Errorf("Secret %s is not selected", secret.Name)
			}
		}
		pod := j.Spec.Template.Spec
		if len(pod.InitContainers) != 1 || !strings.Contains(pod.InitContainers[0].Image, "authserver") ||
			len(pod.Containers) != 1 || !strings.Contains(pod.Containers[0].Image, "resourceapi") {
			t.Errorf("Job %s: authserver's migrations must run before resourceapi's", j.Name)
		}
	}
}

// maxConnections is the connection limit of PostgreSQL that docs/kubernetes.md requires.
const maxConnections = 200

func TestSettings_ConnectionsFitPostgresLimit(t *testing.T) {
	t.Parallel()
	c := example(t)
	most := map[string]int32{}
	for _, d := range c.deployments {
		if d.Spec.Replicas != nil {
			most[d.Name] = *d.Spec.Replicas
		}
	}
	for _, s := range c.scalers {
		most[s.Spec.ScaleTargetRef.Name] = s.Spec.MaxReplicas
	}
	sum := 0
	for _, d := range c.deployments {
		each := 16 // authserver's number, and resourceapi's default
		if setting := valueOf(d.Spec.Template.Spec.Containers[0], "ALMONER_DATABASE_CONNECTIONS"); setting != "" {
			each, _ = strconv.Atoi(setting)
		}
		sum += each * int(most[d.Name]+1) // one more during a rollout
	}
	if sum < 100 || sum > maxConnections-10 {
		t.Errorf("the services may open %d connections", sum)
	}
}

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
			if path := command.Environment[name]; path != "" {
				must(t, os.WriteFile(path, []byte(value), 0o600))
			}
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
		process.Becomes(t, "http://"+process.Addresses["ALMONER_METRICS_LISTEN"]+"/metrics", http.StatusOK)
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
		process.Becomes(t, "http://"+address+ask.Path, http.StatusOK)
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
