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
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/inflight"
)

// What one credential may have in flight (contract, section 6), in one process.
const (
	MaxInFlight = 64
	maxAtOnce   = 8
	MaxSearches = 2
	// maxWait is above the time that 64 requests need at 8 at once, where each takes as long as a store may take.
	maxWait = 10 * time.Second
	// maxSearchWait bounds the wait for the searches of other credentials of the workspace.
	maxSearchWait = 2 * time.Second
	// maxReads is how many pages of one workspace's forms and submissions are read at once. Each holds a connection of
	// Postgres, which are 11 for everybody, for the time that up to 4 MB take.
	maxReads = 3
	// retryAfter is when one of the requests in flight has ended.
	retryAfter = 1
)

// Names of the bounds in the headers RateLimit and RateLimit-Policy.
const (
	inFlightPolicy = "requests-in-flight"
	searchPolicy   = "searches-in-flight"
)

// A credentialKey identifies a credential in one process: the hash of a personal access token or the id of a grant.
type credentialKey [32]byte

func (p presented) key() (key credentialKey) {
	if p.question.PATHash != nil {
		copy(key[:], p.question.PATHash)
		return key
	}
	copy(key[:], p.question.GrantID[:])
	return key
}

// Bounds limit what one credential, and the searches of one workspace, take of the process, so that no workspace takes
// the service from another. All gates of a process share one.
type Bounds struct {
	requests *inflight.Requests[credentialKey]
	searches *inflight.Requests[credentialKey]
	tenants  *inflight.Requests[uuid.UUID]  // searches by workspace
	reads    *inflight.Requests[uuid.UUID]  // of long pages, by workspace
	bytes    *inflight.Bytes[credentialKey] // of answers
}

// NewBounds makes the bounds of a process. One workspace has at most searches searches at once, whatever the number of
// its credentials; those beyond wait.
func NewBounds(searches int) *Bounds {
	return &Bounds{
		requests: inflight.New[credentialKey](inflight.Bounds{InFlight: MaxInFlight, AtOnce: maxAtOnce, Wait: maxWait}),
		searches: inflight.New[credentialKey](inflight.Bounds{InFlight: MaxSearches, AtOnce: MaxSearches}),
		tenants:  inflight.New[uuid.UUID](inflight.Bounds{InFlight: MaxInFlight, AtOnce: searches, Wait: maxSearchWait}),
		reads:    inflight.New[uuid.UUID](inflight.Bounds{InFlight: math.MaxInt, AtOnce: maxReads, Wait: maxWait}),
		bytes:    inflight.NewBytes[credentialKey](answerBytes(), answerBytes()/3),
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
	if hold, ok := ctx.Value(roomKey{}).(*inflight.Hold[credentialKey]); ok {
		return hold.Take
	}
	return func(int) bool { return true }
}

type readsKey struct{}

// workspaceReads are the reads of the workspace that a request was let in to.
type workspaceReads struct {
	reads  *inflight.Requests[uuid.UUID]
	tenant uuid.UUID
}

// ReadInTurn runs read, which reads a long page from Postgres and keeps it, when the workspace of the request has a
// turn for it: many credentials of one workspace together do not hold every connection. read must not wait for the caller.
func ReadInTurn(ctx context.Context, read func() error) (err error) {
	w, ok := ctx.Value(readsKey{}).(workspaceReads)
	if !ok {
		return read()
	}
	turn, err := w.reads.Enter(ctx, w.tenant)
	if err != nil {
		return tooMany(err, "Too many pages of this workspace are being read. Wait for one to end.")
	}
	defer func() { endTurn(turn, err) }()
	return read()
}

// enter waits for the turn of a request, and says in h what the credential has left. The caller ends the turn by leave.
func (b *Bounds) enter(h http.Header, r *http.Request, held presented) (inflight.Turn, error) {
	turn, err := b.requests.Enter(r.Context(), held.key())
	web.SetRateLimits(h, inFlight(turn))
	if err != nil {
		err = tooMany(err, "This credential has 64 requests in flight, which is the most at once. Wait for one to end.")
	}
	return turn, err
}

// enterSearch is enter for a search, which the credential and then the workspace must have room for. turn is what enter
// returned.
func (b *Bounds) enterSearch(h http.Header, r *http.Request, held presented, turn inflight.Turn, tenant uuid.UUID) (leave func(error), err error) {
	own, err := b.searches.Enter(r.Context(), held.key())
	web.SetRateLimits(h, inFlight(turn), web.RateLimit{
		Name:      searchPolicy,
		Quota:     MaxSearches,
		Unit:      web.UnitConcurrentRequests,
		Remaining: MaxSearches - own.Others - 1,
	})
	if err != nil {
		return nil, tooMany(err, "This credential has two searches in flight, which is the most at once. Wait for one to end.")
	}
	shared, err := b.tenants.Enter(r.Context(), tenant)
	if err != nil {
		own.Leave(false)
		return nil, tooMany(err, "Too many searches of this workspace are in flight. Wait for one to end.")
	}
	return func(err error) {
		endTurn(shared, err)
		endTurn(own, err)
	}, nil
}

func inFlight(turn inflight.Turn) web.RateLimit {
	return web.RateLimit{
		Name:      inFlightPolicy,
		Quota:     MaxInFlight,
		Unit:      web.UnitConcurrentRequests,
		Remaining: MaxInFlight - turn.Others - 1,
	}
}

// endTurn ends a turn by the outcome of its request. One that waited in vain for others of its workspace says nothing about
// the stores.
func endTurn(turn inflight.Turn, err error) {
	refusal, ok := errors.AsType[*apierr.Error](err)
	turn.Leave(ok && refusal.Kind == apierr.Unavailable && !errors.Is(err, inflight.ErrWaited))
}

// tooMany is the refusal of a request whose turn has not come.
func tooMany(cause error, message string) error {
	switch {
	case errors.Is(cause, inflight.ErrFailing):
		refusal := apierr.New(apierr.Unavailable, "The service cannot reach its database at the moment. Try again in a few seconds.")
		refusal.Cause = cause
		return refusal
	case errors.Is(cause, inflight.ErrWaited):
		message = "The requests of this credential that are ahead of this one take too long. Send fewer at once."
	case errors.Is(cause, context.Canceled):
		message = "The request was ended by its sender." // which does not read this
	}
	refusal := apierr.New(apierr.RateLimited, message)
	refusal.RetryAfter = retryAfter
	return refusal
}
