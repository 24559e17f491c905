package standing

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// Limits of the batches. Losing some uses is harmless: "last used" is coarse, and a credential in use is soon
// used again.
const (
	noteEvery    = 5 * time.Second
	noteAtMost   = 10_000          // credentials and networks between two flushes; more are dropped
	noteTimeout  = 2 * time.Second // of each statement
	closeTimeout = 2 * noteTimeout
	noteAtOnce   = 200 // networks in a statement

	// What was written is not written again for an hour. A process remembers this number, and then starts anew.
	knownFor    = time.Hour
	knownAtMost = 100_000
)

// NetworksAtMost is how many networks are kept of a credential. A new one then replaces one of those that were not used
// for the most days: the one that was noted last.
const NetworksAtMost = 50

const (
	noteSQL     = `select account.note_use($1, $2, $3, $4)`
	networksSQL = `select account.note_networks($1, $2, $3, $4, $5, $6)`
)

// An Execer runs a statement, in a transaction or not.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// A LastUseRecorder records in Postgres which credentials were used and from where, in batches and outside requests. It
// is safe for concurrent use.
type LastUseRecorder struct {
	db  Execer
	log *slog.Logger

	mu      sync.Mutex
	pending map[place]use

	// Of the goroutine that flushes.
	known      map[place]struct{} // networks that Postgres has
	knownSince time.Time

	stop    chan struct{}
	working context.Context // of the statements
	end     func()          // ends working
	running sync.WaitGroup
}

// A place is a credential and the network from which it was used, or the zero Prefix if that is not known.
type place struct {
	credential uuid.UUID
	network    netip.Prefix
}

func (p place) compare(q place) int {
	return cmp.Or(bytes.Compare(p.credential[:], q.credential[:]), p.network.Addr().Compare(q.network.Addr()))
}

// A use is whose credential was used.
type use struct {
	pat               bool
	workspaceID, user uuid.UUID
}

// NewLastUseRecorder starts a LastUseRecorder, which flushes every five seconds until Close.
func NewLastUseRecorder(db Execer, log *slog.Logger) *LastUseRecorder {
	u := &LastUseRecorder{
		db:      db,
		log:     log,
		pending: map[place]use{},
		stop:    make(chan struct{}),
	}
	u.working, u.end = context.WithCancel(context.Background())
	u.running.Go(u.run)
	return u
}

// Record records that the credential was used from the address, or from one that is not known if it is zero. It does no
// I/O and does not block.
func (u *LastUseRecorder) Record(s Standing, from netip.Addr) {
	at := place{s.CredentialID, networkOf(from)}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.pending) < noteAtMost {
		u.pending[at] = use{s.Kind == PersonalAccessToken, s.CredentialWorkspace, s.UserID}
	}
}

// networkOf returns the network that counts as one place: the /24 of an IPv4 address, or the /48 of an IPv6 address
// (contract, section 5b). It returns the zero Prefix for the zero Addr.
func networkOf(address netip.Addr) netip.Prefix {
	address = address.Unmap().WithZone("")
	bits := 48
	if address.Is4() {
		bits = 24
	}
	network, _ := address.Prefix(bits) // never fails: bits are not more than the address has
	return network
}

// Close flushes the rest, for up to four seconds, and stops. Call it once, before the pool is closed.
func (u *LastUseRecorder) Close() {
	close(u.stop)
	late := time.AfterFunc(closeTimeout, u.end)
	defer late.Stop()
	u.running.Wait()
	u.end()
}

func (u *LastUseRecorder) run() {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for stopped := false; !stopped; u.flush() {
		select {
		case <-tick.C:
		case <-u.stop:
			stopped = true
		}
	}
}

// flush writes the recorded uses. It drops what Postgres does not accept, so that memory stays bounded.
func (u *LastUseRecorder) flush() {
	u.mu.Lock()
	used := u.pending
	u.pending = map[place]use{}
	u.mu.Unlock()
	if len(used) == 0 {
		return
	}
	// Both services lock the rows in the same order, so that they cannot deadlock.
	places := slices.SortedFunc(maps.Keys(used), place.compare)
	u.noteUses(places, used)
	u.noteNetworks(places, used)
}

// exec runs a statement, and logs a failure.
func (u *LastUseRecorder) exec(failure string, rows int, sql string, args ...any) bool {
	ctx, cancel := context.WithTimeout(u.working, noteTimeout)
	defer cancel()
	_, err := u.db.Exec(ctx, sql, args...)
	if err != nil {
		u.log.WarnContext(ctx, failure, "credentials", rows, "cause", err)
	}
	return err == nil
}

// noteUses writes that credentials were used now.
func (u *LastUseRecorder) noteUses(places []place, used map[place]use) {
	pats, patsIn, grants, grantsIn := []uuid.UUID{}, []uuid.UUID{}, []uuid.UUID{}, []uuid.UUID{}
	var before uuid.UUID
	for _, at := range places {
		id := at.credential
		if id == before { // from another network
			continue
		}
		before = id
		if one := used[at]; one.pat {
			pats, patsIn = append(pats, id), append(patsIn, one.workspaceID)
		} else {
			grants, grantsIn = append(grants, id), append(grantsIn, one.workspaceID)
		}
	}
	u.exec("last use not recorded", len(pats)+len(grants), noteSQL, pats, patsIn, grants, grantsIn)
}

// noteNetworks writes the networks that it has not written within the hour, in parts, until one fails: what is left is
// written when the credential is used again.
func (u *LastUseRecorder) noteNetworks(places []place, used map[place]use) {
	if now := time.Now(); now.Sub(u.knownSince) >= knownFor || len(u.known) > knownAtMost {
		u.known, u.knownSince = map[place]struct{}{}, now
	}
	places = slices.DeleteFunc(places, func(at place) bool {
		_, known := u.known[at]
		return known || !at.network.IsValid()
	})
	for part := range slices.Chunk(places, noteAtOnce) {
		if !u.notePart(part, used) {
			return
		}
	}
}

func (u *LastUseRecorder) notePart(places []place, used map[place]use) bool {
	var credentials, workspaces, users []uuid.UUID
	var kinds []string
	var networks []netip.Prefix
	for _, at := range places {
		one, kind := used[at], Connection
		if one.pat {
			kind = PersonalAccessToken
		}
		credentials, networks = append(credentials, at.credential), append(networks, at.network)
		workspaces, users, kinds = append(workspaces, one.workspaceID), append(users, one.user), append(kinds, kind)
	}
	if !u.exec("networks of credentials not recorded", len(credentials), networksSQL,
		workspaces, credentials, kinds, users, networks, NetworksAtMost) {
		return false
	}
	for _, at := range places {
		u.known[at] = struct{}{}
	}
	return true
}
