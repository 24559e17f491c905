// Package store holds the error that the stores in the folders below return when they do not answer.
package store

import "errors"

// ErrUnavailable says that a store did not answer, and that it changed nothing or that this cannot be known. It is
// never the caller's fault: the answer is 503.
var ErrUnavailable = errors.New("a store does not answer")
