// Package store defines the error that the stores in its subfolders return when they do not answer.
package store

import "errors"

// ErrUnavailable reports that a store did not answer. It may have changed nothing, or the outcome is unknown.
// It is never the caller's fault: the response is 503.
var ErrUnavailable = errors.New("store unavailable")
