// Package checks tests what deploys Almoner: it has no code but its tests.
package checks
