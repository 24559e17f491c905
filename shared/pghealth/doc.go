// Package pghealth detects pooled connections that PostgreSQL has closed, and a server that does not respond. Both
// services use it.
package pghealth
