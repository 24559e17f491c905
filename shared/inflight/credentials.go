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

// What one credential may have in flight in one process (contract, section 6).
const (
	MaxPerCredential = 64
	maxAtOnce        = 8
	// maxWait is above the time that 64 requests need at 8 at once, where each takes as long as a store may take.
	maxWait = 10 * time.Second
	// retryAfter is when one of the requests in flight has ended, in seconds.
	retryAfter = 1
)

// credentialPolicy names the bound of a credential in the headers RateLimit and RateLimit-Policy.
const credentialPolicy = "requests-in-flight"

// A Credential identifies a credential in one process: the hash of a personal access token or the id of a grant.
type Credential [32]byte

// CredentialOf returns the credential that a question is about.
func CredentialOf(q standing.Query) (c Credential) {
	if q.PATHash != nil {
		copy(c[:], q.PATHash)
		return c
	}
	copy(c[:], q.GrantID[:])
	return c
}

// Credentials bound the requests of each credential. It is safe for concurrent use.
type Credentials struct{ requests *Requests[Credential] }

// NewCredentials makes the bounds of one process.
func NewCredentials() *Credentials {
	return &Credentials{requests: New[Credential](Bounds{
		InFlight: MaxPerCredential,
		AtOnce:   maxAtOnce,
		Wait:     maxWait,
	})}
}

// Enter waits for the turn of a request, and says in h what the credential has left. Its error is an *apierr.Error. The
// caller ends the turn by Leave.
func (c *Credentials) Enter(ctx context.Context, h http.Header, by Credential) (Turn, error) {
	turn, err := c.requests.Enter(ctx, by)
	web.SetRateLimits(h, turn.RateLimit())
	if err != nil {
		const message = "This credential has 64 requests in flight, which is the most at once. Wait for one to end."
		err = Refusal(err, message)
	}
	return turn, err
}

// RateLimit says what is left for the credential of a turn of Credentials.
func (t Turn) RateLimit() web.RateLimit {
	return web.RateLimit{
		Name:      credentialPolicy,
		Quota:     MaxPerCredential,
		Unit:      web.UnitConcurrentRequests,
		Remaining: MaxPerCredential - t.Others - 1,
	}
}

// Refusal is the answer to a request whose turn has not come for the cause. message is for ErrTooMany.
func Refusal(cause error, message string) *apierr.Error {
	switch {
	case errors.Is(cause, ErrFailing):
		refusal := apierr.New(
			apierr.Unavailable,
			"The service cannot reach its database at the moment. Try again in a few seconds.",
		)
		refusal.Cause = cause
		return refusal
	case errors.Is(cause, ErrWaited):
		message = "The requests of this credential that are ahead of this one take too long. Send fewer at once."
	case errors.Is(cause, context.Canceled):
		message = "The request was ended by its sender." // which does not read this
	}
	refusal := apierr.New(apierr.RateLimited, message)
	refusal.RetryAfter = retryAfter
	return refusal
}
