// Package runbooks tests the pages of deploy/runbooks, and deploy/docs/recovery.md.
//
// Each test runs the blocks of pages unchanged against real servers and the two binaries. What a page leaves to the
// operator's installation, such as stopping a service, the test does between the blocks. Every block is run by at
// least one test.
package runbooks
