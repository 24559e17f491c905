package standing

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// Limits of the batches. Losing some uses is harmless: "last used" is coarse, and a credential in use is soon
// used again.
const (
	noteEvery   = 5 * time.Second
	noteAtMost  = 10_000 // credentials between two flushes; more are dropped
	noteTimeout = 2 * time.Second
)

const noteSQL = `select account.note_use($1, $2, $3, $4)`

// Execer is the part of a pgx pool that a UsageRecorder needs.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// A UsageRecorder records in Postgres which credentials were used, in batches and outside requests. It is
// safe for concurrent use.
type UsageRecorder struct {
	db  Execer
	log *slog.Logger

	mu      sync.Mutex
	pending map[uuid.UUID]use // by the id of the credential

	stop    chan struct{}
	stopped chan struct{}
}

// A use is a credential that was used.
type use struct {
	pat         bool
	workspaceID uuid.UUID
}

// NewUsageRecorder starts a UsageRecorder, which flushes every five seconds until Close.
func NewUsageRecorder(db Execer, log *slog.Logger) *UsageRecorder {
	return startUsageRecorder(db, log, noteEvery)
}

func startUsageRecorder(db Execer, log *slog.Logger, every time.Duration) *UsageRecorder {
	r := &UsageRecorder{
		db:      db,
		log:     log,
		pending: map[uuid.UUID]use{},
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	go r.run(every)
	return r
}

// Record records that the credential was used. It does no I/O and does not block.
func (u *UsageRecorder) Record(s Standing) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.pending) < noteAtMost {
		u.pending[s.CredentialID] = use{s.Kind == PersonalAccessToken, s.CredentialWorkspace}
	}
}

// Close flushes the rest, for up to two seconds, and stops. Call it once, before the pool is closed.
func (u *UsageRecorder) Close() {
	close(u.stop)
	<-u.stopped
}

func (u *UsageRecorder) run(every time.Duration) {
	defer close(u.stopped)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			u.flush()
		case <-u.stop:
			u.flush()
			return
		}
	}
}

// flush writes the recorded uses. It drops what Postgres does not accept, so that memory stays bounded.
func (u *UsageRecorder) flush() {
	u.mu.Lock()
	used := u.pending
	u.pending = map[uuid.UUID]use{}
	u.mu.Unlock()
	if len(used) == 0 {
		return
	}
	pats, grants := []uuid.UUID{}, []uuid.UUID{}
	for id, one := range used {
		if one.pat {
			pats = append(pats, id)
		} else {
			grants = append(grants, id)
		}
	}
	// Both services lock the rows in the same order, so that they cannot deadlock.
	for _, ids := range [][]uuid.UUID{pats, grants} {
		slices.SortFunc(ids, func(a, b uuid.UUID) int { return strings.Compare(string(a[:]), string(b[:])) })
	}
	workspaces := func(ids []uuid.UUID) []uuid.UUID {
		found := make([]uuid.UUID, len(ids))
		for i, id := range ids {
			found[i] = used[id].workspaceID
		}
		return found
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if _, err := u.db.Exec(ctx, noteSQL, pats, workspaces(pats), grants, workspaces(grants)); err != nil {
		u.log.WarnContext(ctx, "credential usage not recorded", "credentials", len(used), "cause", err)
	}
}
