package consent

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/seal"
)

// A Ticket is what was on screen when the user said yes, and whose screen it was. The approval brings it back and is
// believed in nothing else. Its GrantID is the grant's, so that a double submit is one grant (grants.md).
type Ticket struct {
	GrantID     uuid.UUID `json:"g"`
	SignInID    uuid.UUID `json:"s"`
	UserID      uuid.UUID `json:"u"`
	ClientID    uuid.UUID `json:"c"`
	TenantID    uuid.UUID `json:"w"`
	RedirectURI string    `json:"r"`
	State       []byte    `json:"t"` // bytes: it comes back as it was, even where it is no UTF-8
	Permissions perm.Set  `json:"p"` // those that were to be granted
	Resource    string    `json:"a"`
	Challenge   string    `json:"h,omitempty"`
	Issued      time.Time `json:"i"`
}

// TicketLife is how long a consent page may stay open before it is answered.
const TicketLife = time.Hour

// ErrStale says that a ticket is genuine and too old.
var ErrStale = errors.New("the consent page was open for too long")

// Tickets seal and open tickets. They are safe for concurrent use.
type Tickets struct{ box *seal.Box }

// NewTickets derives their key from the master keys.
func NewTickets(keys seal.Keys) (*Tickets, error) {
	box, err := seal.NewBox(keys, "consent ticket")
	if err != nil {
		return nil, fmt.Errorf("consent tickets: %w", err)
	}
	return &Tickets{box: box}, nil
}

// Seal returns the ticket as text for a form.
func (t *Tickets) Seal(ticket Ticket) (string, error) {
	content, err := json.Marshal(ticket)
	if err != nil {
		return "", fmt.Errorf("consent ticket: %w", err)
	}
	return t.box.Seal(content), nil
}

// Open returns the ticket that text holds, ErrStale, or seal.ErrForeign.
func (t *Tickets) Open(text string, now time.Time) (Ticket, error) {
	content, err := t.box.Open(text)
	if err != nil {
		return Ticket{}, err
	}
	var ticket Ticket
	if err := json.Unmarshal(content, &ticket); err != nil {
		return Ticket{}, seal.ErrForeign
	}
	if now.Sub(ticket.Issued) > TicketLife {
		return Ticket{}, ErrStale
	}
	return ticket, nil
}
