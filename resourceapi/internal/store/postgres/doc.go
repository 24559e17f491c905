// Package postgres answers: what does this service keep, and how is it asked for?
//
// One file per aggregate, SQL by hand. The exported methods own their transactions and bound their own time: a caller
// that hangs up does not cut a statement off, because that would cost a connection each time and leave it open whether
// a write took place. Nothing here decides who may do what; every statement on a record names its workspace.
//
// Errors: the sentinels of the domain, or an *apierr.Error of kind Unavailable when Postgres does not answer, or
// anything else, which is a mistake of ours.
package postgres
