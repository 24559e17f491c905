package services

import (
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

func TestContainers_MeetRestrictedStandard(t *testing.T) {
	t.Parallel()
	standards, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	must(t, err)
	restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	for _, w := range example(t).workloads() {
		for _, result := range standards.EvaluatePod(restricted, &w.template.ObjectMeta, &w.template.Spec) {
			if !result.Allowed {
				t.Errorf("%s: the restricted standard forbids: %s, %s", w.name, result.ForbiddenReason,
					result.ForbiddenDetail)
			}
		}
		if mounts := w.template.Spec.AutomountServiceAccountToken; mounts == nil || *mounts {
			t.Errorf("%s: its pods get a token for the cluster's API, which they do not use", w.name)
		}
		for _, c := range w.containers() {
			if c.SecurityContext == nil || c.SecurityContext.ReadOnlyRootFilesystem == nil ||
				!*c.SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s/%s can write to its root file system", w.name, c.Name)
			}
			if !strings.Contains(c.Image, ":") || strings.HasSuffix(c.Image, ":latest") {
				t.Errorf("%s/%s: the image %s has no version", w.name, c.Name, c.Image)
			}
		}
	}
}

// TestContainers_HaveResourceLimits checks that GOMEMLIMIT is nine parts in 32 of the memory limit, and that requests
// are set for the scheduler.
func TestContainers_HaveResourceLimits(t *testing.T) {
	t.Parallel()
	for _, w := range example(t).workloads() {
		for _, c := range w.containers() {
			memory := c.Resources.Limits[core.ResourceMemory]
			if request := c.Resources.Requests[core.ResourceMemory]; memory.IsZero() || request.Cmp(memory) != 0 {
				t.Errorf("%s/%s: the memory request is %s, the limit %s", w.name, c.Name, request.String(),
					memory.String())
				continue
			}
			if cpu := c.Resources.Requests[core.ResourceCPU]; cpu.IsZero() {
				t.Errorf("%s/%s has no CPU request", w.name, c.Name)
			}
			fits(t, w.name+"/"+c.Name, valueOf(c, "GOMEMLIMIT"), memory)
		}
	}
}

func valueOf(c core.Container, name string) string {
	for _, variable := range c.Env {
		if variable.Name == name {
			return variable.Value
		}
	}
	return ""
}

// selected returns the workloads whose pods match a selector.
func (c cluster) selected(t *testing.T, selector *meta.LabelSelector) []string {
	t.Helper()
	var names []string
	for _, w := range c.workloads() {
		if matches(t, selector, w.template.Labels) {
			names = append(names, w.name)
		}
	}
	return names
}

func TestSelectors_MatchTheirPods(t *testing.T) {
	t.Parallel()
	c := example(t)
	means := func(what string, selector *meta.LabelSelector, name string) {
		t.Helper()
		if names := c.selected(t, selector); len(names) != 1 || names[0] != name {
			t.Errorf("%s %s selects the pods of %q", what, name, names)
		}
	}
	for _, d := range c.deployments {
		means("Deployment", d.Spec.Selector, d.Name)
		for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
			means("spread over "+spread.TopologyKey+" of", spread.LabelSelector, d.Name)
		}
		if len(d.Spec.Template.Spec.TopologySpreadConstraints) == 0 {
			t.Errorf("%s: all its pods may run on one node", d.Name)
		}
	}
	for _, s := range c.services {
		means("Service", &meta.LabelSelector{MatchLabels: s.Spec.Selector}, s.Name)
		for _, port := range s.Spec.Ports {
			if d := c.deployment(t, s.Name); portOf(d.template, port.TargetPort.StrVal) == 0 {
				t.Errorf("Service %s: its pods have no port %s", s.Name, port.TargetPort.String())
			} else if portOf(d.template, port.TargetPort.StrVal) != port.Port {
				t.Errorf("Service %s: port %d differs from the pods' port", s.Name, port.Port)
			}
		}
	}
	for _, b := range c.budgets {
		means("PodDisruptionBudget", b.Spec.Selector, b.Name)
	}
}

// deployment returns the workload of a Deployment.
func (c cluster) deployment(t *testing.T, name string) workload {
	t.Helper()
	d := find(t, "Deployment "+name, c.deployments, func(d apps.Deployment) bool { return d.Name == name })
	return workload{d.Name, d.Spec.Template}
}

// portOf returns the number of a named port, or 0.
func portOf(template core.PodTemplateSpec, name string) int32 {
	for _, c := range template.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == name {
				return port.ContainerPort
			}
		}
	}
	return 0
}

// TestDeployments_KeepAPodDuringDisruption checks that a pod runs while a node is drained: there are at least two pods
// and a budget of one.
func TestDeployments_KeepAPodDuringDisruption(t *testing.T) {
	t.Parallel()
	c := example(t)
	minimum := map[string]int32{}
	for _, d := range c.deployments {
		if d.Spec.Replicas != nil {
			minimum[d.Name] = *d.Spec.Replicas
		}
	}
	for _, s := range c.scalers {
		target := s.Spec.ScaleTargetRef
		if target.APIVersion != "apps/v1" || target.Kind != "Deployment" || s.Spec.MinReplicas == nil {
			t.Errorf("HorizontalPodAutoscaler %s: %+v", s.Name, target)
			continue
		}
		c.deployment(t, target.Name)
		if _, set := minimum[target.Name]; set {
			t.Errorf("%s: both its Deployment and its autoscaler set the replicas", target.Name)
		}
		minimum[target.Name] = *s.Spec.MinReplicas
	}
	for _, d := range c.deployments {
		if minimum[d.Name] < 2 {
			t.Errorf("%s: only %d pods", d.Name, minimum[d.Name])
		}
	}
	budgeted := map[string]bool{}
	for _, b := range c.budgets {
		budgeted[b.Name] = b.Spec.MaxUnavailable != nil && b.Spec.MaxUnavailable.IntValue() == 1
	}
	for _, d := range c.deployments {
		if !budgeted[d.Name] {
			t.Errorf("%s: no disruption budget of one", d.Name)
		}
	}
}

func TestPods_GracePeriodCoversShutdown(t *testing.T) {
	t.Parallel()
	c := example(t)
	for _, d := range c.deployments {
		container := d.Spec.Template.Spec.Containers[0]
		needs := drain + submissionDone
		if container.Args[0] == "serve" {
			notice, err := time.ParseDuration(c.command(t, d.Namespace, container).Environment["ALMONER_NOTICE"])
			if err != nil || notice == 0 {
				t.Errorf("%s: ALMONER_NOTICE: %v, %v", d.Name, notice, err)
			}
			needs = notice + drain + importAtWork
		}
		grace := d.Spec.Template.Spec.TerminationGracePeriodSeconds
		if grace == nil || time.Duration(*grace)*time.Second <= needs {
			t.Errorf("%s: pods are killed before the %v that shutdown takes", d.Name, needs)
		}
	}
}
