// The tests of what deploys Almoner: containers, manifests, units, alerts. A module of its own, outside go.work: what they need to read those files
// (compose, Kubernetes, Prometheus) has no business among what the product needs.
module github.com/almonerhq/almoner/deploy/checks

go 1.26.0
