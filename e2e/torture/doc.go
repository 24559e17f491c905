// Package torture tests the promises about grants under concurrency and while stores and processes fail.
//
// Each suite has a short form, which `make test` runs, and a long form: `make torture PART=races` or another part that
// README.md lists. The results of the long forms are in e2e/EVIDENCE.md.
//
// brokenbuilds_test.go proves that each suite can fail: it builds the product without one protection, runs the suite
// against that build and checks that it fails. The source files stay unchanged (harness.Fault).
package torture
