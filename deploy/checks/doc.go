// Package checks contains the tests of the deployment files. It has no other code.
package checks
