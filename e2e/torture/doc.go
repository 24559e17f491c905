// Package torture answers: do the promises about grants hold when everything happens at once, and when the ground gives
// way?
//
// Each suite has a short form, which `make test` runs, and a long one: `make torture PART=races` (or another part;
// README.md here lists them). What the long ones found is in e2e/EVIDENCE.md.
//
// A suite that cannot fail proves nothing. So bites_test.go builds the product with a protection taken away, runs the
// suite against that build and wants it to fail; the source itself stays as it is (harness.Fault).
package torture
