// Package systemd tests deploy/systemd without a running systemd: the contents of its units, the real binaries started
// as the units say, and the report of systemd-analyze if it is installed.
package systemd
