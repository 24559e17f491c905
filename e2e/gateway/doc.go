// Package gateway answers: do Caddy and nginx, as deploy/gateway configures them, what a gateway before the two
// services has to do?
//
// Both are the real programs, on loopback, with TLS by a certificate authority of the test's own, before the real
// binaries. A program that is not here is skipped, and said so; `make test` installs both.
package gateway
