// Package gateway tests Caddy and nginx, as configured by deploy/gateway, in front of the two services.
//
// Both are the real programs, on loopback, with TLS by a certificate authority of the test, in front of the real
// binaries. The tests of a program that is not installed are skipped with a message; `make test` installs both.
package gateway
