// These files test deploy/kubernetes: they decode the output of kustomize strictly with Kubernetes' own types, and
// start the real binaries as the manifests say.

package services

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A cluster holds every object of an overlay.
type cluster struct {
	namespaces  []core.Namespace
	configs     []core.ConfigMap
	secrets     []core.Secret
	deployments []apps.Deployment
	jobs        []batch.Job
	services    []core.Service
	budgets     []policy.PodDisruptionBudget
	scalers     []autoscaling.HorizontalPodAutoscaler
	policies    []networking.NetworkPolicy
	routes      []gateway.HTTPRoute
}

// secretsFolder is the directory where the example overlay expects secrets. The tests make them up.
const secretsFolder = "example/secrets/"

// files returns deploy/kubernetes in memory, with secrets.
func files(t testing.TB) filesys.FileSystem {
	t.Helper()
	inMemory := filesys.MakeFsInMemory()
	write := func(path string, content []byte) {
		must(t, inMemory.WriteFile("/"+path, content))
	}
	root := os.DirFS(filepath.Join(repository(), "deploy", "kubernetes"))
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(path, secretsFolder) {
			return err
		}
		content, err := fs.ReadFile(root, path)
		write(path, content)
		return err
	})
	must(t, err)
	for _, name := range []string{"owner-database-url", "authserver-database-url", "resourceapi-database-url"} {
		write(secretsFolder+name, []byte("postgres://user:password@stores.invalid/almoner\n"))
	}
	for _, name := range []string{"redis-url", "resourceapi-redis-url"} {
		write(secretsFolder+name, []byte("redis://user:password@stores.invalid:6379\n"))
	}
	write(secretsFolder+"smtp-url", []byte("smtp://user:password@mail.invalid\n"))
	for _, name := range []string{"authserver-keys", "resourceapi-keys"} {
		write(secretsFolder+name, []byte(newKey()+"\n"))
	}
	return inMemory
}

// render builds a folder of deploy/kubernetes as kubectl apply -k does, and decodes it.
func render(t testing.TB, folder string) cluster {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files(t), "/"+folder)
	if err != nil {
		t.Fatalf("%s: %v", folder, err)
	}
	var c cluster
	for _, object := range made.Resources() {
		text, err := object.AsYAML()
		must(t, err)
		if err := c.add(object.GetKind(), object.GetApiVersion(), text); err != nil {
			t.Errorf("%s: %s %s: %v", folder, object.GetKind(), object.GetName(), err)
		}
	}
	return c
}

// example returns the example overlay, which most tests use: base with the additions of one deployment.
var example = testkit.Once(func(t testing.TB) cluster { return render(t, "example") })

func (c *cluster) add(kind, version string, text []byte) error {
	switch version + " " + kind {
	case "v1 Namespace":
		return decode(&c.namespaces, text)
	case "v1 ConfigMap":
		return decode(&c.configs, text)
	case "v1 Secret":
		return decode(&c.secrets, text)
	case "apps/v1 Deployment":
		return decode(&c.deployments, text)
	case "batch/v1 Job":
		return decode(&c.jobs, text)
	case "v1 Service":
		return decode(&c.services, text)
	case "policy/v1 PodDisruptionBudget":
		return decode(&c.budgets, text)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		return decode(&c.scalers, text)
	case "networking.k8s.io/v1 NetworkPolicy":
		return decode(&c.policies, text)
	case "gateway.networking.k8s.io/v1 HTTPRoute":
		return decode(&c.routes, text)
	}
	return fmt.Errorf("no test knows %s %s", version, kind)
}

// decode appends an object. A field that the type does not have is an error.
func decode[T any](into *[]T, text []byte) error {
	var object T
	err := yaml.UnmarshalStrict(text, &object)
	*into = append(*into, object)
	return err
}

// A workload runs pods.
type workload struct {
	name     string
	template core.PodTemplateSpec
}

func (w workload) containers() []core.Container {
	return slices.Concat(w.template.Spec.InitContainers, w.template.Spec.Containers)
}

func (c cluster) workloads() []workload {
	var all []workload
	for _, d := range c.deployments {
		all = append(all, workload{d.Name, d.Spec.Template})
	}
	for _, j := range c.jobs {
		all = append(all, workload{j.Name, j.Spec.Template})
	}
	return all
}

// find returns the first object for which is returns true.
func find[T any](t *testing.T, what string, all []T, is func(T) bool) T {
	t.Helper()
	i := slices.IndexFunc(all, is)
	if i < 0 {
		t.Fatalf("there is no %s", what)
	}
	return all[i]
}

func TestObjects_DecodeStrictly(t *testing.T) {
	t.Parallel()
	base := render(t, "base")
	for _, w := range base.workloads() {
		if w.template.Namespace != "" {
			t.Errorf("base: %s names a namespace", w.name)
		}
	}
	for _, d := range base.deployments {
		if d.Namespace != "" {
			t.Errorf("base: %s is in a namespace, which only an overlay may set", d.Name)
		}
	}
	c := example(t)
	for what, found := range map[string]int{
		"Deployment":              len(c.deployments) - 3,
		"Job":                     len(c.jobs) - 1,
		"Service":                 len(c.services) - 2,
		"HTTPRoute":               len(c.routes) - 2,
		"HorizontalPodAutoscaler": len(c.scalers) - 2,
		"PodDisruptionBudget":     len(c.budgets) - 3,
		"Secret":                  len(c.secrets) - 3,
	} {
		if found != 0 {
			t.Errorf("%s: %+d objects compared with the expected number", what, found)
		}
	}
}
