// Package heap configures Go's garbage collector for a service.
package heap

import (
	"os"
	"runtime/debug"
)

const (
	// percent is the amount of garbage relative to the live heap, as GOGC. A service has about 10 MiB of live
	// heap and produces some 60 KB of garbage per request: Go's default of 100 would collect a dozen times a
	// second under load.
	percent = 400

	// limit is the memory in bytes at which garbage is collected regardless of percent. Under load without
	// logins, the resident memory of a service stays below 80 MiB, including memory outside the heap.
	limit = 48 << 20
)

// Tune sets GOGC and GOMEMLIMIT for a service, unless the operator has set them.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
