// Package postgres stores the records of this service in Postgres.
//
// It has one file per aggregate, with SQL by hand. Exported methods own their transactions and time limits. A caller
// that disconnects does not cancel a statement, because that would close a connection each time and leave it open
// whether a write was committed. This package does not authorize callers; every statement on a record names its
// workspace.
//
// Errors are the sentinels of the domain, an *apierr.Error of kind Unavailable if Postgres does not respond, or an
// internal error.
package postgres
