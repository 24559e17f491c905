package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// Events reads the changes in the workspace (contract, section 6a).
type Events struct{ c *caller }

// An Event describes a change of a record. It does not contain the values of the record.
type Event struct {
	Sequence  int64     `json:"sequence"` // increases; pass the last one to List to continue after it
	Type      string    `json:"type"`     // such as programme.updated
	Timestamp time.Time `json:"timestamp"`
	Data      EventData `json:"data"`
}

// EventData names the record that changed.
type EventData struct {
	ID      string   `json:"id"`
	Changed []string `json:"changed"` // names of the changed fields, for an update
}

const eventsPath = "/v1/events"

// List returns the events of the last 30 days after a sequence, oldest first. A sequence of 0 returns all of them. To
// follow changes, store the sequence of the last event that the program has handled, and pass it to the next call: no
// event is missed or returned twice.
func (e Events) List(ctx context.Context, after int64) iter.Seq2[Event, error] {
	query := url.Values{}
	if after != 0 {
		query.Set("after", strconv.FormatInt(after, 10))
	}
	return list[Event](ctx, e.c, e.c.get(eventsPath, query))
}
