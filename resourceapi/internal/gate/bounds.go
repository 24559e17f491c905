package gate

import (
	"context"
	"errors"
	"math"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/inflight"
	"github.com/almonerhq/almoner/shared/web"
)

// What one credential, and one workspace, may have in flight in one process (contract, section 6).
const (
	MaxInFlight = inflight.MaxPerCredential
	MaxSearches = 2
	// maxWait bounds the wait for the reads of other credentials of the workspace.
	maxWait = 10 * time.Second
	// maxSearchWait bounds the wait for the searches of other credentials of the workspace.
	maxSearchWait = 2 * time.Second
	// maxReads is how many pages of one workspace's forms and submissions are read at once. Each holds a connection of
	// Postgres, which are 11 for everybody, for the time that up to 4 MB take.
	maxReads = 3
)

// searchPolicy names the bound of searches in the headers RateLimit and RateLimit-Policy.
const searchPolicy = "searches-in-flight"

// key identifies the credential.
func (p presented) key() inflight.Credential { return inflight.CredentialOf(p.question) }

// Bounds limit what one credential, and the searches of one workspace, take of the process, so that no workspace takes
// the service from another. All gates of a process share one.
type Bounds struct {
	requests   *inflight.Credentials
	searches   *inflight.Requests[inflight.Credential]
	workspaces *inflight.Requests[uuid.UUID]        // searches by workspace
	reads      *inflight.Requests[uuid.UUID]        // of long pages, by workspace
	bytes      *inflight.Bytes[inflight.Credential] // of answers
}

// NewBounds makes the bounds of a process. One workspace has at most searches searches at once, whatever the number of
// its credentials; those beyond wait.
func NewBounds(searches int) *Bounds {
	return &Bounds{
		requests: inflight.NewCredentials(),
		searches: inflight.New[inflight.Credential](inflight.Bounds{InFlight: MaxSearches, AtOnce: MaxSearches}),
		workspaces: inflight.New[uuid.UUID](
			inflight.Bounds{InFlight: MaxInFlight, AtOnce: searches, Wait: maxSearchWait},
		),
		reads: inflight.New[uuid.UUID](inflight.Bounds{InFlight: math.MaxInt, AtOnce: maxReads, Wait: maxWait}),
		bytes: inflight.NewBytes[inflight.Credential](answerBytes(), answerBytes()/3),
	}
}

// answerBytes is how many bytes of answers the process holds for those who read them: a fifth of the memory that it may
// use, or 64 MiB if it may use any.
func answerBytes() int {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return int(limit / 5)
	}
	return 64 << 20
}

type roomKey struct{}

// Room returns how a request that was let in takes bytes for its answer: false says that there is no room for more, and
// the answer ends early.
func Room(ctx context.Context) func(bytes int) bool {
	if hold, ok := ctx.Value(roomKey{}).(*inflight.Hold[inflight.Credential]); ok {
		return hold.Take
	}
	return func(int) bool { return true }
}

type readsKey struct{}

// workspaceReads are the reads of the workspace that a request was let in to.
type workspaceReads struct {
	reads       *inflight.Requests[uuid.UUID]
	workspaceID uuid.UUID
}

// ReadInTurn runs read, which reads a long page from Postgres and keeps it, when the workspace of the request has a
// turn for it: many credentials of one workspace together do not hold every connection. read must not wait for the
// caller.
func ReadInTurn(ctx context.Context, read func() error) (err error) {
	w, ok := ctx.Value(readsKey{}).(workspaceReads)
	if !ok {
		return read()
	}
	turn, err := w.reads.Enter(ctx, w.workspaceID)
	if err != nil {
		return inflight.Refusal(err, "Too many pages of this workspace are being read. Wait for one to end.")
	}
	defer func() { endTurn(turn, err) }()
	return read()
}

// enterSearch waits for the turn of a search, which the credential and then the workspace must have room for. turn is
// that of the request.
func (b *Bounds) enterSearch(
	h http.Header,
	r *http.Request,
	held presented,
	turn inflight.Turn,
	workspaceID uuid.UUID,
) (leave func(error), err error) {
	own, err := b.searches.Enter(r.Context(), held.key())
	web.SetRateLimits(h, turn.RateLimit(), web.RateLimit{
		Name:      searchPolicy,
		Quota:     MaxSearches,
		Unit:      web.UnitConcurrentRequests,
		Remaining: MaxSearches - own.Others - 1,
	})
	if err != nil {
		return nil, inflight.Refusal(
			err,
			"This credential has two searches in flight, which is the most at once. Wait for one to end.",
		)
	}
	shared, err := b.workspaces.Enter(r.Context(), workspaceID)
	if err != nil {
		own.Leave(false)
		return nil, inflight.Refusal(err, "Too many searches of this workspace are in flight. Wait for one to end.")
	}
	return func(err error) {
		endTurn(shared, err)
		endTurn(own, err)
	}, nil
}

// endTurn ends a turn by the outcome of its request. One that waited in vain for others of its workspace says nothing
// about the stores.
func endTurn(turn inflight.Turn, err error) {
	refusal, ok := errors.AsType[*apierr.Error](err)
	turn.Leave(ok && refusal.Kind == apierr.Unavailable && !errors.Is(err, inflight.ErrWaited))
}
