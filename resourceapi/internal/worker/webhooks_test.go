package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
)

// someWebhooks have workspaces with an endpoint each, whose deliveries end as deliver says.
type someWebhooks struct {
	workspaces []uuid.UUID
	failing    error // of the query for workspaces that are unread
	deliver    func() error

	claimed  [][]uuid.UUID // the workspaces of each step
	released int
}

func (s *someWebhooks) WorkspacesWithWebhooks(
	_ context.Context, after uuid.UUID, limit int,
) (all, unread []uuid.UUID, err error) {
	rest := s.workspaces[slices.Index(s.workspaces, after)+1:]
	return rest[:min(limit, len(rest))], nil, s.failing
}

func (s *someWebhooks) ClaimWebhooks(
	_ context.Context, workspaces []uuid.UUID, _ time.Duration, _, _ int,
) ([]delivery.Claim, error) {
	s.claimed = append(s.claimed, workspaces)
	return nil, nil
}

func (s *someWebhooks) ReleaseWebhook(context.Context, delivery.Claim) error {
	s.released++
	return nil
}

func (s *someWebhooks) Deliver(context.Context, uuid.UUID, uuid.UUID) error { return s.deliver() }

func senderOf(t *testing.T, webhooks Webhooks) *sender {
	t.Helper()
	return &sender{Worker: &Worker{Webhooks: webhooks, Log: slog.New(slog.DiscardHandler)}, work: t.Context()}
}

// An endpoint whose events cannot be sent keeps its claim, so that it does not come first in each claim. A panic is an
// error and does not end the process.
func TestSend_EndpointRestsAfterError(t *testing.T) {
	for name, c := range map[string]struct {
		deliver func() error
		want    int
	}{
		"sent":   {func() error { return nil }, 1},
		"failed": {func() error { return errors.New("not readable") }, 0},
		"panic":  {func() error { panic("not readable") }, 0},
	} {
		webhooks := &someWebhooks{deliver: c.deliver}
		senderOf(t, webhooks).send(delivery.Claim{})
		if webhooks.released != c.want {
			t.Errorf("%s: released %d times, want %d", name, webhooks.released, c.want)
		}
	}
}

// Each step goes on with the next workspaces, also after an error, and the one after the last begins again.
func TestStep_GoesOnAfterError(t *testing.T) {
	webhooks := &someWebhooks{failing: errors.New("too slow")}
	for range workspacesPerStep + 1 {
		webhooks.workspaces = append(webhooks.workspaces, uuid.New())
	}
	s := senderOf(t, webhooks)
	for _, want := range []time.Duration{stepInterval, webhookInterval, stepInterval} {
		if rest, err := s.step(t.Context()); rest != want || err == nil {
			t.Errorf("the next step after %s, want %s: %v", rest, want, err)
		}
	}
	for i, want := range []int{workspacesPerStep, 1, workspacesPerStep} {
		if len(webhooks.claimed) != 3 || len(webhooks.claimed[i]) != want {
			t.Errorf("step %d: %d claims", i, len(webhooks.claimed))
		}
	}
}
