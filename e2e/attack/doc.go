// Package attack answers: does the product withstand what has broken others, and what else can be tried from outside?
//
// README.md here has a row for each known attack and names its test: many are in e2e and in the packages concerned, and
// what was missing is here, one file for each kind of attack. TestEveryAttackNamesATest holds the two together.
//
// The routes that an attack goes through are read from the product itself (routes_test.go), so a new one without its
// row is a failing test. And an attack that cannot succeed proves nothing: bites_test.go builds the product without its
// protections and wants each attack to be noticed.
package attack
