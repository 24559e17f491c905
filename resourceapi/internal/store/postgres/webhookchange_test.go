package postgres

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/publicnet"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// changingStore calls change after an event was selected for delivery.
type changingStore struct {
	*Webhooks
	change func()
}

// Next implements delivery.Events.
func (s changingStore) Next(
	ctx context.Context, t delivery.Target, types []string,
) (some []delivery.Event, end int64, more bool, err error) {
	if some, end, more, err = s.Webhooks.Next(ctx, t, types); len(some) > 0 {
		s.change()
	}
	return some, end, more, err
}

// Event implements delivery.Events.
func (s changingStore) Event(ctx context.Context, workspaceID uuid.UUID, sequence int64) (*delivery.Event, error) {
	defer s.change()
	return s.Webhooks.Event(ctx, workspaceID, sequence)
}

// W3 and W8: a change of an endpoint or of its user's permissions applies to events that were selected before it.
func TestW3_ChangeAppliesToSelectedEvent(t *testing.T) {
	t.Parallel()
	w, opened := newStore(t)
	store := opened.Webhooks()
	type change = func(workspaceID, user uuid.UUID)
	holding := func(held ...perm.Permission) change {
		return func(workspaceID, user uuid.UUID) { w.Member(workspaceID, user, held...) }
	}
	set := func(columns string) change {
		return func(workspaceID, _ uuid.UUID) {
			w.Exec("update account.webhooks set "+columns+" where tenant_id = $1", workspaceID)
		}
	}
	for name, c := range map[string]struct {
		change         change
		asked          bool // for personal data
		resent         bool // instead of sent for the first time
		sent, personal bool
	}{
		"nothing changes":                  {func(_, _ uuid.UUID) {}, true, false, true, true},
		"the user loses the permission":    {holding(perm.AccountAPIAccess), true, false, false, false},
		"the user loses access to the API": {holding(perm.AccountReadMembers), true, false, false, false},
		"the endpoint is disabled": {
			set("enabled = false, reason = 'user', disabled_at = now()"), true, false, false, false,
		},
		"personal data is asked for":           {set("personal_data_for = user_id"), false, false, true, true},
		"personal data is no longer asked for": {set("personal_data_for = null"), true, false, true, false},
		"personal data was asked for by another user": {
			set("personal_data_for = '" + w.User().String() + "'"), true, false, true, false,
		},
		"the user loses the permission before a resend": {
			holding(perm.AccountAPIAccess), true, true, false, false,
		},
		"personal data is no longer asked for before a resend": {
			set("personal_data_for = null"), true, true, true, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			workspaceID, user := w.Workspace(), w.User()
			w.Member(workspaceID, user, perm.AccountAPIAccess, perm.AccountReadMembers)
			changing := changingStore{store, func() { c.change(workspaceID, user) }}
			received := deliverTo(t, w, changing, workspaceID, user, c.asked, c.resent)
			if sent := len(received) > 0; sent != c.sent {
				t.Fatalf("received %+v, want an event: %v", received, c.sent)
			}
			for _, one := range received {
				if one.Data.ID != user || (one.Data.Member != nil) != c.personal {
					t.Errorf("received %+v, want personal data: %v", one, c.personal)
				}
			}
		})
	}
}

// receivedEvent is the body of a delivery about a member.
type receivedEvent struct {
	Data struct {
		ID     uuid.UUID
		Member *delivery.Member
	}
}

// deliverTo adds an endpoint of the user, who may have asked for personal data, sends or resends the event that the
// user became a member, and returns what the endpoint received.
func deliverTo(
	t *testing.T,
	w *postgrestest.Fixture,
	store changingStore,
	workspaceID, user uuid.UUID,
	asked, resent bool,
) (received []receivedEvent) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var one receivedEvent
		if err := json.NewDecoder(r.Body).Decode(&one); err != nil {
			t.Error(err)
		}
		received = append(received, one)
	}))
	defer server.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	keys := orFail(webhook.NewKeys(seal.NewKeys(make([]byte, 32))))(t)
	id := uuid.New()
	secret := orFail(webhook.Seal(keys.Public(), id, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="))(t)
	w.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position, created_at,
			personal_data_for)
		values ($1, $2, $3, $4, '{member.added}', $5, $6, 0, now(), case when $7 then $3::uuid end)`,
		id, workspaceID, user, server.URL, secret.Secret, secret.Key, asked)
	deliver := func(store interface {
		delivery.Store
		delivery.Events
	}) {
		t.Helper()
		received = nil
		deliverer := delivery.New(delivery.Deps{
			Store:   store,
			Events:  store,
			Network: publicnet.New(publicnet.Options{Trusted: trusted}),
			Keys:    keys,
			Count:   func(delivery.Outcome, time.Duration) {},
			Now:     time.Now,
		})
		must(t, deliverer.Deliver(t.Context(), workspaceID, id))
	}
	w.Exec("select account.number_events($1)", workspaceID)
	if resent {
		deliver(store.Webhooks)
		w.Exec(`insert into account.webhook_deliveries (id, tenant_id, webhook_id, cause, type, sequence)
			select gen_random_uuid(), $1, $2, 'resend', type, sequence from account.events where tenant_id = $1`,
			workspaceID, id)
	}
	deliver(store)
	return received
}

// W8: while Engage is off in the workspace, submissions cannot be read with the API either.
func TestW8_SubmissionIsNotSentWhileModuleIsOff(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	workspaceID, submission := w.Workspace(), uuid.New()
	addSubmission(w, workspaceID, addForm(w, workspaceID), submission, "0")
	e := delivery.Event{Type: "submission.created", Data: []byte(`{"id":"` + submission.String() + `"}`)}
	for _, state := range []struct{ enabled, provisioned, want bool }{
		{true, true, true},
		{false, true, false},
		{true, false, false},
	} {
		w.Exec(`insert into account.tenant_modules (tenant_id, module, enabled, provisioned)
			values ($1, 'engage', $2, $3) on conflict (tenant_id, module) do update
			set enabled = excluded.enabled, provisioned = excluded.provisioned`,
			workspaceID, state.enabled, state.provisioned)
		p := orFail(store.Webhooks().PersonalData(t.Context(), workspaceID, e))(t)
		if (p.Submission != nil) != state.want {
			t.Errorf("%+v: %+v", state, p)
		}
	}
}
