package testkit

import "time"

// Fastest calls f n times and returns the shortest duration of a call. A busy machine may delay single calls, so a test
// limits the fastest one.
func Fastest(n int, f func()) time.Duration {
	fastest := time.Duration(1<<63 - 1)
	for range n {
		began := time.Now()
		f()
		fastest = min(fastest, time.Since(began))
	}
	return fastest
}
