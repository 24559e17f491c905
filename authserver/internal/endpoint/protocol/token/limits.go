package token

import (
	"errors"
	"math"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/web"
)

// limited counts a refusal that may come from guessing or repeating, and replaces it by a 429 if there were too many
// (contract, section 3). A request that cannot be read, or has no secret and no token, is cheap and is not counted.
func (e Endpoints) limited(request engine.TokenRequest, err error) error {
	refused, isRefusal := errors.AsType[*engine.TokenError](err)
	if !isRefusal {
		return err
	}
	switch refused.Code {
	case "invalid_grant", "invalid_target", "invalid_scope":
		if presented, authentic := engine.Presented(e.Grants, request); authentic {
			return after(e.Failures.ForGrant(presented.GrantID), "refusals-per-grant", ratelimit.PerGrant, err)
		}
	}
	return e.limitedClient(request.ClientID, err)
}

// limitedClient counts err if it refuses the client's authentication or grant, and replaces it by a 429 if there were
// too many. It returns other errors unchanged.
func (e Endpoints) limitedClient(name string, err error) error {
	refused, isRefusal := errors.AsType[*engine.TokenError](err)
	if !isRefusal ||
		(refused.Code != "invalid_client" && refused.Code != "invalid_grant" && refused.Code != "invalid_target") {
		return err
	}
	return after(e.Failures.ForClient(name), "refusals-per-client", ratelimit.PerClient, err)
}

func after(wait time.Duration, name string, perMinute int, err error) error {
	if wait <= 0 {
		return err
	}
	tooMany := apierr.New(
		apierr.RateLimited,
		"Too many requests like this one failed. Try again after the time in Retry-After. Valid requests are not "+
			"limited.",
	)
	tooMany.RetryAfter = int(math.Ceil(wait.Seconds()))
	limit := web.RateLimit{Name: name, Quota: perMinute, Window: time.Minute, Reset: wait}
	return &limitedError{answer: tooMany, limit: limit}
}

// A limitedError is a 429 with the limit that was exceeded.
type limitedError struct {
	answer *apierr.Error
	limit  web.RateLimit
}

func (l *limitedError) Error() string { return l.answer.Error() }

// Unwrap returns the 429 for errors.As.
func (l *limitedError) Unwrap() error { return l.answer }
