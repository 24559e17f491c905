// Package kubernetes tests deploy/kubernetes without a cluster: what kustomize makes of it, decoded strictly with
// Kubernetes' own types, and the real binaries started as the manifests say.
package kubernetes
