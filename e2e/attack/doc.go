// Package attack tests the product against known attacks on similar products and against further attacks from outside.
//
// README.md has a row for each known attack with the tests that try it. Many of these tests are in e2e and in the
// packages concerned; the others are here, one file for each kind of attack. TestREADME_NamesATestForEachAttack checks
// that README.md and the tests agree.
//
// The tests read the routes to attack from the product itself (routes_test.go), so a new route without a row fails a
// test. brokenbuilds_test.go builds the product without its protections and checks that each attack then succeeds.
package attack
