package connectionlog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

func TestOfGrant_ReadsAttemptFromGrant(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before, ago, later := now.Add(-time.Hour), now.Add(-time.Minute), now.Add(time.Hour)
	live := func(state grant.State, generation uint32) grant.Grant {
		return grant.Grant{State: state, Generation: generation, Created: before, LastUsed: &before, Ends: later}
	}
	fresh := live(grant.Pending, 0)
	fresh.Created, fresh.LastUsed = now, nil
	unused := live(grant.Pending, 0)
	unused.LastUsed = nil
	revoked := live(grant.Revoked, 3)
	revoked.Reason, revoked.RevokedAt = grant.Replayed, &ago
	over := live(grant.Active, 1)
	over.Ends = ago
	refused := &connectionlog.Refusal{At: ago, Reason: "code_verifier does not match"}
	again := live(grant.Active, 2)
	used := again
	used.LastUsed = &now
	for name, c := range map[string]struct {
		g       grant.Grant
		called  *time.Time
		refusal *connectionlog.Refusal
		taken   string // x for each step that was taken
		outcome connectionlog.Outcome
		reason  string
	}{
		"approved just now":       {fresh, nil, nil, "xx---", connectionlog.Waiting, "one minute"},
		"never exchanged":         {unused, nil, nil, "xx---", connectionlog.Refused, "never finished"},
		"wrong verifier":          {unused, nil, refused, "xx---", connectionlog.Refused, "code_verifier"},
		"exchanged":               {live(grant.Active, 1), nil, nil, "xxx--", connectionlog.Working, ""},
		"called":                  {live(grant.Active, 1), &ago, nil, "xxxx-", connectionlog.Working, ""},
		"refreshed, no call":      {again, nil, nil, "xxx-x", connectionlog.Working, ""},
		"refused since":           {again, &before, refused, "xxxxx", connectionlog.Refused, "code_verifier"},
		"used after refusal":      {used, &before, refused, "xxxxx", connectionlog.Working, ""},
		"grant ended":             {over, &before, nil, "xxxx-", connectionlog.Ended, "has expired"},
		"grant ended and refused": {over, &before, refused, "xxxx-", connectionlog.Ended, "has expired"},
		"revoked": {revoked, &before, refused, "xxxxx", connectionlog.Ended,
			"Claude was disconnected on 1 March 2026 at 11:59:00 UTC because an old access key was used again."},
	} {
		a := connectionlog.OfGrant(c.g, "Claude", c.called, c.refusal, now)
		taken := ""
		for _, step := range a.Taken {
			taken += map[bool]string{true: "x", false: "-"}[step]
		}
		if taken != c.taken || a.Outcome != c.outcome || !strings.Contains(a.Reason, c.reason) ||
			(c.reason == "" && a.Reason != "") {
			t.Errorf("%s: %s %s %q", name, taken, a.Outcome, a.Reason)
		}
	}
}

// A refusal of a grant that has ended says to people why.
func TestWords_KnowEveryEndOfAGrant(t *testing.T) {
	t.Parallel()
	unknown := connectionlog.Words("x")
	for _, reason := range grant.Reasons() {
		if words := connectionlog.Words(reason.Words(nil)); words == unknown {
			t.Errorf("%s: %q", reason, words)
		}
	}
}

// countingStore counts writes.
type countingStore struct {
	written int
	fails   error
}

func (s *countingStore) RecordStopped(context.Context, connectionlog.StoppedAttempt) error {
	s.written++
	return s.fails
}

func stopped() connectionlog.StoppedAttempt {
	return connectionlog.StoppedAttempt{
		WorkspaceID: uuid.New(), ClientID: uuid.New(), Outcome: connectionlog.Refused, Reason: "no",
	}
}

func TestRecorder_LimitsRepetitionsAndFloods(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	store := &countingStore{}
	var log strings.Builder
	n := connectionlog.NewRecorder(store, func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)))
	stop := stopped()
	wants := func(what string, want int) {
		t.Helper()
		if store.written != want {
			t.Errorf("%s: %d written, want %d", what, store.written, want)
		}
	}
	for range 1000 {
		n.Record(t.Context(), stop)
	}
	wants("repetition", 1)
	now = now.Add(time.Minute)
	n.Record(t.Context(), stop)
	wants("after a minute", 2)
	for i := range 4500 {
		stop.Reason = fmt.Sprint(i)
		n.Record(t.Context(), stop)
	}
	if store.written > 4200 {
		t.Errorf("a flood of 4,500 different ones: %d written", store.written)
	}
	now = now.Add(time.Minute)
	before := store.written
	stop.Reason = "after the flood"
	n.Record(t.Context(), stop)
	wants("after the flood", before+1)
	stop.WorkspaceID = uuid.Nil
	n.Record(t.Context(), stop)
	wants("without a workspace", before+1)
	stop.WorkspaceID, store.fails = uuid.New(), errors.New("silent")
	n.Record(t.Context(), stop)
	if !strings.Contains(log.String(), "stopped authorization not recorded") {
		t.Error("a failed write is not in the log")
	}
}

// The workspace of an orphan is known after Recorded.
func TestRecorder_OrphanIsNewAgainAfterFailedWrite(t *testing.T) {
	t.Parallel()
	store := &countingStore{fails: errors.New("silent")}
	n := connectionlog.NewRecorder(store, time.Now, slog.New(slog.DiscardHandler))
	written := stopped()
	written.Orphan = true
	orphan := written
	orphan.WorkspaceID = uuid.Nil
	if n.Write(t.Context(), written) == nil {
		t.Fatal("the first orphan is not new, or its write does not fail")
	}
	if n.Recorded(orphan) {
		t.Error("an orphan that was not written is recorded")
	}
	store.fails = nil
	if err := n.Write(t.Context(), written); err != nil || !n.Recorded(orphan) {
		t.Errorf("a written orphan is not recorded: %v", err)
	}
}
