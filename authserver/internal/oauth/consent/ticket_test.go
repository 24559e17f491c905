package consent_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestTicket_OpensAsItsKindWithinTheHour(t *testing.T) {
	keys, err := seal.ParseKeys("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	testkit.Must(t, err)
	consents, choices, err := consent.NewTickets(keys)
	testkit.Must(t, err)
	issued := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ticket := consent.Ticket{
		RequestIdentity: consent.RequestIdentity{SignInID: uuid.New(), ClientID: uuid.New(), State: []byte("\xff")},
		UserID:          uuid.New(),
		Permissions:     change,
		Resource:        "https://api.example.org/mcp",
		Issued:          issued,
	}
	text, err := consents.Seal(ticket)
	testkit.Must(t, err)
	for name, c := range map[string]struct {
		by   consent.Tickets
		text string
		at   time.Time
		want error
	}{
		"as it was":       {consents, text, issued.Add(consent.TicketLife), nil},
		"too old":         {consents, text, issued.Add(consent.TicketLife + 1), consent.ErrStale},
		"of another kind": {choices, text, issued, seal.ErrForeign},
		"changed":         {consents, text[1:], issued, seal.ErrForeign},
	} {
		got, err := c.by.Open(c.text, c.at)
		if !errors.Is(err, c.want) || (err == nil && !reflect.DeepEqual(got, ticket)) {
			t.Errorf("%s: %+v, %v, want %v", name, got, err, c.want)
		}
	}
	request := ticket.AuthorizationRequest(client.Client{Kind: client.Connector, Required: change})
	if !reflect.DeepEqual(request.RequestIdentity, ticket.RequestIdentity) || request.Resource != ticket.Resource ||
		len(request.Client.Required) != 1 {
		t.Errorf("%+v", request)
	}
}
