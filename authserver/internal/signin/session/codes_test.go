package session

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// A downCounter is the shared counter during an outage: this process counts alone.
type downCounter struct{}

func (downCounter) Count(context.Context, string, int, time.Duration, bool) (time.Duration, error) {
	return 0, errors.New("down")
}

// codeLog records the mails of wrong codes.
type codeLog struct{ wrong, mails int }

func (l *codeLog) RecordWrongCode(_ context.Context, _ CodeTry, mail bool, _ audit.Event) error {
	l.wrong++
	if mail {
		l.mails++
	}
	return nil
}

// An attacker with the password who tries codes without a pause waits longer and longer; a browser that has signed in
// before, and a new password, have their own allowance; the user gets one mail a day.
func TestCodes_WaitsGrowAndKnownBrowsersAreNotLockedOut(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	began := now
	a := NewAttempts(downCounter{}, slog.New(slog.DiscardHandler), func() time.Time { return now })
	try := CodeTry{User: uuid.New(), Password: []byte("p"), Address: netip.MustParseAddr("192.0.2.1")}
	log := &codeLog{}
	tries := func(until time.Duration) (n int) {
		for now.Sub(began) < until {
			if limit := a.Code(t.Context(), try); limit.Reset > 0 {
				if limit.Quota == 0 {
					t.Fatalf("%+v", limit)
				}
				now = now.Add(limit.Reset)
				continue
			}
			n++
			must(t, a.WrongCode(t.Context(), log, try))
		}
		return n
	}
	const day = 24 * time.Hour
	if n := tries(5 * time.Hour); n != 30 || log.mails != 1 {
		t.Errorf("%d tries and %d mails within 5 hours, want 30 and 1", n, log.mails)
	}
	for _, other := range []CodeTry{
		{User: try.User, Password: try.Password, Known: true},
		{User: try.User, Password: []byte("new password")},
		{User: uuid.New(), Password: try.Password},
	} {
		if wait := a.Code(t.Context(), other).Reset; wait > 0 {
			t.Errorf("%+v must wait for %v", other, wait)
		}
	}
	tries(60 * day)
	if n := tries(90 * day); n != 60 || log.mails > 91 {
		t.Errorf("%d tries within 30 days, want 60; %d mails", n, log.mails)
	}
}

// Right codes do not count towards the long waits.
func TestCodes_RightCodesNeverLockOut(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := NewAttempts(downCounter{}, slog.New(slog.DiscardHandler), func() time.Time { return now })
	try := CodeTry{User: uuid.New(), Password: []byte("p")}
	for range 500 {
		if wait := a.Code(t.Context(), try).Reset; wait > 0 {
			t.Fatalf("must wait for %v", wait)
		}
		now = now.Add(time.Minute)
	}
}
