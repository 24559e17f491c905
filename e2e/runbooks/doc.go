// Package runbooks answers: does what deploy/runbooks tells an operator to type do what it says?
//
// Each test walks through pages, block by block as they stand, against real servers and the two binaries; what a page
// leaves to the operator's installation, such as stopping a service, the test does between the blocks. Every block is
// walked through by some test.
package runbooks
