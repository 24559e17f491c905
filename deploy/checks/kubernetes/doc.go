// Package kubernetes tests deploy/kubernetes without a cluster: it decodes the output of kustomize strictly with
// Kubernetes' own types, and starts the real binaries as the manifests say.
package kubernetes
