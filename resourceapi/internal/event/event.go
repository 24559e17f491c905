// Package event describes the events of a workspace: what changed, and when (contract, section 6a).
//
// The database writes an event in the transaction of its change. It assigns sequences when events are read, a
// bounded number at a time, so that no event appears later with a lower one. Package worker assigns the rest. Package
// endpoint/events serves the events, and package delivery sends them to webhook endpoints.
package event

import (
	"encoding/json"
	"time"
)

// An Event says that a record changed. It contains no values.
type Event struct {
	Sequence int64
	Type     string          // a subject and what happened to it, such as programme.created
	Data     json.RawMessage // the id and, of an update, the names of the changed fields
	At       time.Time
}
