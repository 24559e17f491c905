package gate

import (
	"context"
	"errors"
	"math"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// Bounds on the concurrent requests of one credential and one workspace in one process (contract, section 6).
const (
	MaxInFlight = inflight.MaxPerCredential
	MaxSearches = 2
	// MaxExports is the maximum number of concurrent exports of one credential.
	MaxExports = 2
	// maxWait bounds the wait for the reads of other credentials of the workspace.
	maxWait = 10 * time.Second
	// maxSearchWait bounds the wait for the searches of other credentials of the workspace.
	maxSearchWait = 2 * time.Second
	// maxReads is how many pages of one workspace's forms and submissions are read at once. Each read holds one of
	// the 11 Postgres connections of the process while up to 4 MB are transferred.
	maxReads = 3
)

// searchPolicy names the search limit in the RateLimit and RateLimit-Policy headers.
const searchPolicy = "searches-in-flight"

// key identifies the credential.
func (p presented) key() inflight.Credential { return inflight.CredentialOf(p.question) }

// Bounds limit what one credential, and the searches of one workspace, use of the process, so that one workspace
// cannot starve the others. All gates of a process share one Bounds.
type Bounds struct {
	requests   *inflight.Credentials
	searches   *inflight.Requests[inflight.Credential]
	exports    *inflight.Requests[inflight.Credential]
	workspaces *inflight.Requests[uuid.UUID]        // searches, by workspace
	reads      *inflight.Requests[uuid.UUID]        // long pages, by workspace
	bytes      *inflight.Bytes[inflight.Credential] // response bytes, by credential
}

// NewBounds returns the bounds of a process. A workspace runs at most the given number of searches at once, however
// many credentials it has; further searches wait.
func NewBounds(searches int) *Bounds {
	return &Bounds{
		// Reads share statements. Writes, long pages and searches have their own bounds. So a single credential cannot
		// use up the connections.
		requests: inflight.NewCredentials(MaxInFlight),
		searches: inflight.New[inflight.Credential](inflight.Bounds{InFlight: MaxSearches, AtOnce: MaxSearches}),
		exports:  inflight.New[inflight.Credential](inflight.Bounds{InFlight: MaxExports, AtOnce: MaxExports}),
		workspaces: inflight.New[uuid.UUID](
			inflight.Bounds{InFlight: MaxInFlight, AtOnce: searches, Wait: maxSearchWait}),
		reads: inflight.New[uuid.UUID](inflight.Bounds{InFlight: math.MaxInt, AtOnce: maxReads, Wait: maxWait}),
		bytes: inflight.NewBytes[inflight.Credential](answerBytes(), answerBytes()/3),
	}
}

// answerBytes is how many response bytes the process may hold for slow readers: a fifth of the memory limit, or 64
// MiB if there is no limit.
func answerBytes() int {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return int(limit / 5)
	}
	return 64 << 20
}

type bytesKey struct{}

// ByteReserver returns the function by which an admitted request reserves bytes for its response. If it returns false,
// there is no room for more and the response must end early.
func ByteReserver(ctx context.Context) func(bytes int) bool {
	if hold, ok := ctx.Value(bytesKey{}).(*inflight.Hold[inflight.Credential]); ok {
		return hold.Take
	}
	return func(int) bool { return true }
}

// ReadInTurn runs read, which loads a long page from Postgres, once the workspace of the request has a free read
// slot. This prevents the credentials of one workspace from holding every connection. read must not wait for the
// client.
func (c Caller) ReadInTurn(ctx context.Context, read func() error) (err error) {
	turn, err := c.reads.Enter(ctx, c.WorkspaceID)
	if err != nil {
		return inflight.Refusal(err, "Too many lists of this workspace are being read. Wait until one finishes.")
	}
	defer func() { endTurn(turn, err) }()
	return read()
}

// enterSearch waits for a search slot of the credential and then of the workspace. turn is the request's own.
func (b *Bounds) enterSearch(
	h http.Header, r *http.Request, held presented, turn inflight.Turn, workspaceID uuid.UUID,
) (leave func(error), err error) {
	own, err := b.searches.Enter(r.Context(), held.key())
	web.SetRateLimits(h, turn.RateLimit(), web.RateLimit{
		Name:      searchPolicy,
		Quota:     MaxSearches,
		Unit:      web.UnitConcurrentRequests,
		Remaining: MaxSearches - own.Others - 1,
	})
	if err != nil {
		return nil, inflight.Refusal(err,
			"This credential has two searches in flight, which is the maximum. Wait until one finishes.")
	}
	shared, err := b.workspaces.Enter(r.Context(), workspaceID)
	if err != nil {
		own.Leave(false)
		return nil, inflight.Refusal(err, "Too many searches of this workspace are in flight. Wait until one finishes.")
	}
	return func(err error) {
		endTurn(shared, err)
		endTurn(own, err)
	}, nil
}

// endTurn ends a turn with the outcome of its request. A request that timed out waiting for others of its workspace
// is not counted as a failure of the stores.
func endTurn(turn inflight.Turn, err error) {
	refusal, ok := errors.AsType[*apierr.Error](err)
	turn.Leave(ok && refusal.Kind == apierr.Unavailable && !errors.Is(err, inflight.ErrWaited))
}
