package containers

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const composeFile = root + "/deploy/compose.yaml"

// answers returns the settings that a user of the compose file must give.
func answers() []string {
	return []string{
		"GATEWAY_API_HOST=api.example.org", "GATEWAY_APP_HOST=app.example.org", "GATEWAY_TLS=ops@example.org",
		"COMMIT=" + commit,
	}
}

func load(t *testing.T, environ []string, overlays ...string) (*types.Project, error) {
	t.Helper()
	files := append([]string{composeFile}, overlays...)
	options, err := cli.NewProjectOptions(files, cli.WithEnv(environ), cli.WithResolvedPaths(true))
	must(t, err)
	return options.LoadProject(t.Context())
}

// project returns the compose file as Compose reads it.
func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := load(t, answers())
	must(t, err)
	return p
}

func TestCompose_RequiresDeploymentSettings(t *testing.T) {
	for i, answer := range answers() {
		name, _, _ := strings.Cut(answer, "=")
		rest := slices.Delete(answers(), i, i+1)
		if _, err := load(t, rest); (err == nil) != (name == "COMMIT") ||
			(err != nil && !strings.Contains(err.Error(), name)) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// TestCompose_SendsMailWithItsOverlay requires that only authserver gets the mail server's URL, as a file.
func TestCompose_SendsMailWithItsOverlay(t *testing.T) {
	const overlay = root + "/deploy/compose/mail.yaml"
	if _, err := load(t, answers(), overlay); err == nil || !strings.Contains(err.Error(), "ALMONER_MAIL_FROM") {
		t.Errorf("without a sender: %v", err)
	}
	p, err := load(t, append(answers(), "ALMONER_MAIL_FROM=Almoner <almoner@example.org>"), overlay)
	must(t, err)
	if file := p.Secrets["smtp_url"].File; !strings.HasSuffix(file, "/deploy/secrets/smtp_url") {
		t.Errorf("the secret is at %s", file)
	}
	for name, s := range p.Services {
		isURL := func(f types.ServiceSecretConfig) bool { return f.Source == "smtp_url" }
		mails := slices.ContainsFunc(s.Secrets, isURL)
		url, from := s.Environment["ALMONER_SMTP_URL_FILE"], s.Environment["ALMONER_MAIL_FROM"]
		if mails != strings.HasPrefix(name, "authserver-") || mails != (url != nil) || mails != (from != nil) {
			t.Errorf("%s: secret %v, URL %v, sender %v", name, mails, url, from)
		}
		if mails && (*url != "/run/secrets/smtp_url" || *from != "Almoner <almoner@example.org>" ||
			s.Environment["ALMONER_KEYS_FILE"] == nil || len(s.Secrets) != 4) {
			t.Errorf("%s: %s, %s, %v", name, *url, *from, s.Secrets)
		}
	}
}

// isJob reports whether a service does its work and ends.
func isJob(s types.ServiceConfig) bool { return s.Restart == "no" }

// loose returns the rights and omissions of a service that it does not need.
func loose(s types.ServiceConfig) []string {
	var found []string
	complain := func(wrong bool, words string) {
		if wrong {
			found = append(found, words)
		}
	}
	complain(!regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(s.User), "its user is not a number above 0")
	complain(!s.ReadOnly, "it may write to its image")
	var needed []string
	if s.Name == "gateway" {
		needed = []string{"NET_BIND_SERVICE"} // an attribute of Caddy's file, which does not start without it
	}
	complain(!slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.CapAdd, needed), "it has capabilities")
	complain(!slices.Contains(s.SecurityOpt, "no-new-privileges:true"), "it may gain privileges")
	complain(s.Privileged || s.NetworkMode == "host" || s.Pid != "" || s.Ipc != "" || len(s.Devices) > 0,
		"it has host access")
	limits := s.Deploy
	unlimited := limits == nil || limits.Resources.Limits == nil || limits.Resources.Limits.NanoCPUs <= 0 ||
		limits.Resources.Limits.MemoryBytes <= 0 || limits.Resources.Limits.Pids <= 0
	complain(unlimited, "it has no limit of CPU, memory and processes")
	if isJob(s) {
		complain(s.HealthCheck != nil && !s.HealthCheck.Disable, "it is a job with a health check")
	} else {
		noCheck := s.HealthCheck == nil || s.HealthCheck.Disable || len(s.HealthCheck.Test) < 2
		complain(noCheck, "it has no health check")
		complain(s.Restart != "unless-stopped", "it is not restarted")
	}
	complain(s.Name != "gateway" && len(s.Ports) > 0, "it is published")
	complain(s.Logging == nil || s.Logging.Options["max-size"] == "", "its log size is unlimited")
	complain(strings.HasSuffix(s.Image, ":latest") || !strings.Contains(s.Image, ":"), "its image has no version")
	for name, value := range s.Environment {
		secret := regexp.MustCompile(`KEY|PASSWORD|SECRET|DATABASE_URL|REDIS_URL`).MatchString(name)
		complain(
			secret && !(strings.HasSuffix(name, "_FILE") && value != nil && strings.HasPrefix(*value, "/run/secrets/")),
			name+" is not a file")
	}
	for _, mount := range s.Volumes {
		complain(mount.Type == types.VolumeTypeBind && !mount.ReadOnly, "it may write to the host's "+mount.Source)
		complain(strings.Contains(mount.Source, "docker.sock"), "it has access to the engine")
	}
	return found
}

func TestCompose_GrantsLeastPrivilege(t *testing.T) {
	p := project(t)
	for name, s := range p.Services {
		for _, words := range loose(s) {
			t.Errorf("%s: %s", name, words)
		}
		for _, secret := range s.Secrets {
			if s.Environment == nil && s.Name != "redis" {
				t.Errorf("%s gets %s and reads no secret", name, secret.Source)
			}
		}
	}
	for name, secret := range p.Secrets {
		if secret.File == "" || secret.Environment != "" || secret.Content != "" {
			t.Errorf("the secret %s is not a file", name)
		}
	}
	if !p.Networks["stores"].Internal {
		t.Error("the stores can reach the internet")
	}
	for _, name := range []string{"postgres", "redis"} {
		if networks := p.Services[name].Networks; len(networks) != 1 ||
			networks["stores"] != nil && len(networks["stores"].Aliases) > 0 {
			t.Errorf("%s is in %v", name, networks)
		}
	}
	if _, reached := p.Services["gateway"].Networks["stores"]; reached {
		t.Error("the gateway can reach the stores")
	}
}

func TestCompose_UsesImagesOfTheDockerfile(t *testing.T) {
	for name, s := range project(t).Services {
		if s.Build == nil {
			continue
		}
		if file, _ := filepath.Abs(dockerfile); filepath.Join(s.Build.Context, s.Build.Dockerfile) != file {
			t.Errorf("%s is built by %s in %s", name, s.Build.Dockerfile, s.Build.Context)
		}
		if context, _ := filepath.Abs(root); s.Build.Context != context {
			t.Errorf("%s is built in %s", name, s.Build.Context)
		}
		if final := stage(t, s.Build.Target); !strings.HasPrefix(s.Image, "almoner/"+final.Name+":") {
			t.Errorf("%s: the image of target %s is %s", name, final.Name, s.Image)
		}
	}
}

// TestSecretsScript_CreatesEachSecretOnce checks that the script writes every secret of the compose file and replaces
// none.
func TestSecretsScript_CreatesEachSecretOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	makeSecrets(t, dir)
	before := map[string]string{}
	for name, secret := range project(t).Secrets {
		content, err := os.ReadFile(filepath.Join(dir, filepath.Base(secret.File)))
		if err != nil || len(content) < 20 {
			t.Errorf("%s: %d bytes, %v", name, len(content), err)
		}
		before[name] = string(content)
		if filepath.Base(filepath.Dir(secret.File)) != "secrets" || filepath.Base(secret.File) != name {
			t.Errorf("%s is at %s", name, secret.File)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != len(before) {
		t.Errorf("%d files for %d secrets, %v", len(entries), len(before), err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory's mode is not 0700: %v", err)
	}
	makeSecrets(t, dir)
	for name, content := range before {
		if again, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(again) != content {
			t.Errorf("%s was replaced, %v", name, err)
		}
	}
}

// Earlier releases gave authserver the URL of the Redis user default, with the operator's password.
func TestSecretsScript_GivesAuthserverItsOwnRedisUser(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	makeSecrets(t, dir)
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		return string(content)
	}
	write := func(name, content string) {
		must(t, os.Remove(filepath.Join(dir, name)))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o444))
	}
	operators := read("redis_password")
	write("redis_url", "redis://:"+operators+"@redis:6379/0")
	write("redis_users.conf", "user authserver on >"+operators+" ~*\n")
	others := read("resourceapi_redis_url")
	makeSecrets(t, dir)
	address, err := url.Parse(read("redis_url"))
	must(t, err)
	password, _ := address.User.Password()
	if address.User.Username() != "authserver" || password == operators || len(password) < 20 {
		t.Errorf("authserver connects as %q", address.User.Username())
	}
	users := read("redis_users.conf")
	if !strings.Contains(users, "user authserver on >"+password+" ") || strings.Contains(users, operators) ||
		!strings.Contains(users, "user resourceapi on >") || read("resourceapi_redis_url") != others {
		t.Error("the Redis users do not have the passwords of the URLs")
	}
	for _, kept := range []string{address.String(), "rediss://:" + operators + "@redis.example.org:6379/0"} {
		write("redis_url", kept)
		if makeSecrets(t, dir); read("redis_url") != kept || read("redis_users.conf") != users {
			t.Error("a URL was replaced that the script of an earlier release did not write")
		}
	}
}

func makeSecrets(t *testing.T, dir string) {
	t.Helper()
	if output, err := exec.Command("sh", root+"/deploy/setup.sh", "compose", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

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
