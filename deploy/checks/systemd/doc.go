// Package systemd tests deploy/systemd without a running systemd: what its units say, the real binaries started as they
// say, and, where it is installed, what systemd-analyze thinks of them.
package systemd
