package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"

	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// purpose names the key of stored messages.
const purpose = "queued mail"

// job is the stored arguments of a job: a sealed message (M4).
type job struct {
	Sealed string `json:"sealed"`
}

// Kind returns the type of the job in the database.
func (job) Kind() string { return "mail" }

// stored is a message as it is sealed. Message itself does not marshal its token.
type stored struct {
	ID      uuid.UUID `json:"id"`
	Kind    Kind      `json:"kind"`
	Address string    `json:"address"`
	Name    string    `json:"name,omitempty"`
	Data    Data      `json:"data"`
	Token   string    `json:"token,omitempty"`
	Expires time.Time `json:"expires"`
}

// A Queue adds messages within transactions of type Tx. It is safe for concurrent use.
type Queue[Tx any] struct {
	client *river.Client[Tx]
	box    *seal.Box
	now    func() time.Time
}

// NewQueue returns a queue that adds jobs to the tables of the schema and runs none.
func NewQueue[Tx any](
	driver riverdriver.Driver[Tx], schema string, keys seal.Keys, now func() time.Time,
) (*Queue[Tx], error) {
	box, err := seal.NewBox(keys, purpose)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(driver,
		&river.Config{Schema: schema, PollOnly: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("make the mail queue: %w", err)
	}
	return &Queue[Tx]{client: client, box: box, now: now}, nil
}

// errNotQueued reports a mistake of the caller.
var errNotQueued = errors.New("the message cannot be queued")

// Add adds the job of a message to the transaction (M1).
func (q *Queue[Tx]) Add(ctx context.Context, tx Tx, m Message) error {
	k, ok := kindOf(m.Kind)
	if !ok || m.Address == "" {
		return fmt.Errorf("%w: kind %q", errNotQueued, m.Kind)
	}
	if m.Expires.IsZero() {
		m.Expires = q.now().Add(k.life)
	}
	content, err := json.Marshal(stored{
		ID:      identity.New(),
		Kind:    m.Kind,
		Address: m.Address,
		Name:    m.Name,
		Data:    m.Data,
		Token:   m.Token.Reveal(),
		Expires: m.Expires,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotQueued, err)
	}
	_, err = q.client.InsertTx(ctx, tx, job{q.box.Seal(content)}, &river.InsertOpts{MaxAttempts: maxAttempts})
	return err
}

// open returns the message of a job.
func open(box *seal.Box, j job) (Message, error) {
	content, err := box.Open(j.Sealed)
	if err != nil {
		return Message{}, err
	}
	var s stored
	if err := json.Unmarshal(content, &s); err != nil {
		return Message{}, err
	}
	return Message{
		ID:      s.ID,
		Kind:    s.Kind,
		Address: s.Address,
		Name:    s.Name,
		Data:    s.Data,
		Token:   credential.Secret(s.Token),
		Expires: s.Expires,
	}, nil
}
