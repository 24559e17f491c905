// Package heap answers: how much memory may garbage take before it is collected?
package heap

import (
	"os"
	"runtime/debug"
)

const (
	// percent of what is in use may be garbage. A service has about 10 MiB in use and makes some 60 KB of garbage a
	// request: Go's own 100 would collect a dozen times a second under load, for which the processors have better use.
	percent = 400

	// limit is where garbage is collected whatever the percentage, in bytes. A service stays below 80 MiB resident
	// under load without logins, what is no heap included.
	limit = 48 << 20
)

// Tune sets Go's garbage collector for a service. GOGC and GOMEMLIMIT win over it where the operator has set them.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
