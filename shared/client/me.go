package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// A Me describes the credential of a client: its user, the workspaces in which it works, and its limits.
type Me struct {
	User struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		Email string `json:"email"`
	} `json:"user"`
	Credential struct {
		Type      string    `json:"type"` // "personal_access_token" or "access_token"
		Name      string    `json:"name"`
		ExpiresAt time.Time `json:"expiresAt"`
	} `json:"credential"`
	Workspaces []struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Permissions []string `json:"permissions"`
	} `json:"workspaces"`
	Limits struct {
		RequestsInFlight int `json:"requestsInFlight"`
		SearchesInFlight int `json:"searchesInFlight"`
		PageSize         int `json:"pageSize"`
		PageBytes        int `json:"pageBytes"`
	} `json:"limits"`
}

// Me returns what the credential of the client may do, and where. It needs no permission.
func (c *Client) Me(ctx context.Context) (Me, error) {
	var out Me
	_, err := c.OAuthClients.c.do(ctx, c.OAuthClients.c.get("/v1/me", nil), &out)
	return out, err
}

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
