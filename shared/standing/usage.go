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

// How uses are gathered. Losing some is harmless: "last used" is coarse, and a credential in use is soon used again.
const (
	noteEvery   = 5 * time.Second
	noteAtMost  = 10_000 // credentials between two flushes; further ones are dropped
	noteTimeout = 2 * time.Second
)

const noteSQL = `select account.note_use($1, $2)`

// Execer is the part of a pgx pool that a Noter needs.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// An UsageRecorder tells Postgres which credentials were used, in batches and off the request path. It is safe for
// concurrent use.
type UsageRecorder struct {
	db  Execer
	log *slog.Logger

	mu      sync.Mutex
	pending map[uuid.UUID]bool // id → is a personal access token

	stop    chan struct{}
	stopped chan struct{}
}

// NewUsageRecorder starts a noter, which flushes every five seconds until Close.
func NewUsageRecorder(db Execer, log *slog.Logger) *UsageRecorder {
	return startNoter(db, log, noteEvery)
}

func startNoter(db Execer, log *slog.Logger, every time.Duration) *UsageRecorder {
	n := &UsageRecorder{
		db:      db,
		log:     log,
		pending: map[uuid.UUID]bool{},
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	go n.run(every)
	return n
}

// Record says that the credential was used. It does no I/O and waits for none.
func (n *UsageRecorder) Record(s Standing) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pending) < noteAtMost {
		n.pending[s.CredentialID] = s.Kind == PersonalAccessToken
	}
}

// Close flushes what is left (two seconds at most) and stops. Call it once, before the pool is closed.
func (n *UsageRecorder) Close() {
	close(n.stop)
	<-n.stopped
}

func (n *UsageRecorder) run(every time.Duration) {
	defer close(n.stopped)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.flush()
		case <-n.stop:
			n.flush()
			return
		}
	}
}

// flush hands over what was gathered. What Postgres does not take is dropped rather than gathered without end.
func (n *UsageRecorder) flush() {
	n.mu.Lock()
	used := n.pending
	n.pending = map[uuid.UUID]bool{}
	n.mu.Unlock()
	if len(used) == 0 {
		return
	}
	pats, grants := []uuid.UUID{}, []uuid.UUID{}
	for id, isPAT := range used {
		if isPAT {
			pats = append(pats, id)
		} else {
			grants = append(grants, id)
		}
	}
	// Two services that lock the same rows in one order cannot wait for each other.
	for _, ids := range [][]uuid.UUID{pats, grants} {
		slices.SortFunc(ids, func(a, b uuid.UUID) int { return strings.Compare(string(a[:]), string(b[:])) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if _, err := n.db.Exec(ctx, noteSQL, pats, grants); err != nil {
		n.log.WarnContext(ctx, "the use of credentials was not noted", "credentials", len(used), "cause", err)
	}
}
