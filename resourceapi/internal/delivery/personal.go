package delivery

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/event"
)

// PersonalData is the current record that an event is about, of events of submissions and members. Its fields are nil
// if the record is no longer stored.
type PersonalData struct {
	Submission *engage.SubmissionRecord `json:"submission,omitempty"`
	Supporter  *engage.SupporterRecord  `json:"supporter,omitempty"` // of the submission, once it was processed
	Member     *Member                  `json:"member,omitempty"`
}

// A Member is a user of the workspace.
type Member struct {
	UserID uuid.UUID `json:"userId"`
	Name   string    `json:"name"`
	Email  string    `json:"email"`
}

// withPersonalData adds the personal data to the data of an event, if the user of the endpoint asked for it (W8). The
// caller has checked that the user may read the event.
func (d *Deliverer) withPersonalData(ctx context.Context, t Target, e event.Event) (event.Event, error) {
	if !t.PersonalData {
		return e, nil
	}
	personal, err := d.Store.PersonalData(ctx, t.WorkspaceID, e)
	if err != nil {
		return event.Event{}, err
	}
	added, err := json.Marshal(personal)
	if err != nil {
		return event.Event{}, fmt.Errorf("encode the personal data of an event: %w", err)
	}
	data := map[string]json.RawMessage{}
	for _, part := range []json.RawMessage{e.Data, added} {
		if err := json.Unmarshal(part, &data); err != nil {
			return event.Event{}, fmt.Errorf("add personal data to an event: %w", err)
		}
	}
	e.Data, err = json.Marshal(data)
	if err != nil {
		return event.Event{}, fmt.Errorf("encode the data of an event: %w", err)
	}
	return e, nil
}
