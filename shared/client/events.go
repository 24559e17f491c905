package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// Events reads what changed in the workspace (contract, section 6a).
type Events struct{ c *caller }

// An Event is a change of a record. It has no values: read the record to get them.
type Event struct {
	Sequence  int64     `json:"sequence"` // grows; pass the newest one to List to continue after it
	Type      string    `json:"type"`     // such as programme.updated
	Timestamp time.Time `json:"timestamp"`
	Data      EventData `json:"data"`
}

// EventData names the record that changed.
type EventData struct {
	ID      string   `json:"id"`
	Changed []string `json:"changed"` // names of the fields, of an update
}

const eventsPath = "/v1/events"

// List returns the events of the last 30 days after a sequence, oldest first; 0 is the beginning. To follow changes,
// store the sequence of the last event that the program has handled, and list again after it: no event is missed, and
// none is returned twice.
func (e Events) List(ctx context.Context, after int64) iter.Seq2[Event, error] {
	query := url.Values{}
	if after != 0 {
		query.Set("after", strconv.FormatInt(after, 10))
	}
	return list[Event](ctx, e.c, e.c.get(eventsPath, query))
}
