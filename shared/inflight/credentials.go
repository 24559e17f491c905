package inflight

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/standing"
	"github.com/almonerhq/almoner/shared/web"
)

// Limits of one credential in one process (contract, section 6).
const (
	MaxPerCredential = 64
	maxAtOnce        = 8
	// maxWait is longer than 64 requests need at 8 at a time if each takes as long as a store may take.
	maxWait = 10 * time.Second
	// retryAfter is the time in seconds after which one of the requests in flight has probably ended.
	retryAfter = 1
)

// credentialPolicy is the name of the limit in the headers RateLimit and RateLimit-Policy.
const credentialPolicy = "requests-in-flight"

// A Credential identifies a credential in one process: the hash of a personal access token or the id of a grant.
type Credential [32]byte

// CredentialOf returns the credential of a query.
func CredentialOf(q standing.Query) (c Credential) {
	if q.PATHash != nil {
		copy(c[:], q.PATHash)
		return c
	}
	copy(c[:], q.GrantID[:])
	return c
}

// Credentials bounds the requests of each credential. It is safe for concurrent use.
type Credentials struct{ requests *Requests[Credential] }

// NewCredentials returns the Credentials of one process. alone is how many requests of a credential run at once while
// no other credential has requests; 0 means no exception.
func NewCredentials(alone int) *Credentials {
	return &Credentials{requests: New[Credential](Bounds{
		InFlight: MaxPerCredential,
		AtOnce:   maxAtOnce,
		Alone:    alone,
		Wait:     maxWait,
	})}
}

// Enter waits for the turn of a request and sets rate limit headers in h. Its error is an *apierr.Error. The
// caller ends the turn with Leave.
func (c *Credentials) Enter(ctx context.Context, h http.Header, by Credential) (Turn, error) {
	turn, err := c.requests.Enter(ctx, by)
	web.SetRateLimits(h, turn.RateLimit())
	if err != nil {
		const message = "This credential has 64 requests in flight, which is the maximum. Wait until one finishes."
		err = Refusal(err, message)
	}
	return turn, err
}

// RateLimit returns what is left for the credential of a turn.
func (t Turn) RateLimit() web.RateLimit {
	return web.RateLimit{
		Name:      credentialPolicy,
		Quota:     MaxPerCredential,
		Unit:      web.UnitConcurrentRequests,
		Remaining: MaxPerCredential - t.Others - 1,
	}
}

// Refusal returns the error response for a request that got no turn because of cause. message is for
// ErrTooMany.
func Refusal(cause error, message string) *apierr.Error {
	switch {
	case errors.Is(cause, ErrFailing):
		refusal := apierr.New(apierr.Unavailable,
			"The service cannot reach its database at the moment. Try again in a few seconds.")
		refusal.Cause = cause
		return refusal
	case errors.Is(cause, ErrWaited):
		message = "The earlier requests of this credential take too long. Send fewer requests at once."
	case errors.Is(cause, context.Canceled):
		message = "The client canceled the request." // the sender does not read this
	}
	refusal := apierr.New(apierr.RateLimited, message)
	refusal.RetryAfter = retryAfter
	return refusal
}
