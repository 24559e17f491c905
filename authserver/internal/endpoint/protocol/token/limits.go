package token

import (
	"errors"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Failures counts refusals (package ratelimit). It returns how long the client must wait, or 0.
type Failures interface {
	ForClient(name string) time.Duration
	ForGrant(id uuid.UUID) time.Duration
}

// limited counts a refusal that may come from guessing or repeating, and replaces it by a 429 if there were too many
// (contract, section 3). A request that cannot be read, or has no secret and no token, is cheap and is not counted.
func (d Deps) limited(request engine.TokenRequest, err error) error {
	refused, isRefusal := errors.AsType[*engine.TokenError](err)
	if !isRefusal {
		return err
	}
	switch refused.Code {
	case "invalid_client":
		return LimitedClient(d.Failures, request.ClientID, err)
	case "invalid_grant", "invalid_target", "invalid_scope":
		if presented, authentic := engine.Presented(d.Tokens, request); authentic {
			return afterGrant(d.Failures.ForGrant(presented.GrantID), err)
		}
		return LimitedClient(d.Failures, request.ClientID, err)
	}
	return err
}

// LimitedClient counts err if it refuses the client's authentication or grant, and replaces it by a 429 if there were
// too many. It returns other errors unchanged.
func LimitedClient(counter Failures, name string, err error) error {
	refused, isRefusal := errors.AsType[*engine.TokenError](err)
	if !isRefusal ||
		(refused.Code != "invalid_client" && refused.Code != "invalid_grant" && refused.Code != "invalid_target") {
		return err
	}
	return after(counter.ForClient(name), "refusals-per-client", ratelimit.PerClient, err)
}

func afterGrant(wait time.Duration, err error) error {
	return after(wait, "refusals-per-grant", ratelimit.PerGrant, err)
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
	return &limitedError{
		answer: tooMany,
		limit: web.RateLimit{
			Name:   name,
			Quota:  perMinute,
			Window: time.Minute,
			Reset:  wait,
		},
	}
}

// A limitedError is a 429 with the limit that was exceeded.
type limitedError struct {
	answer *apierr.Error
	limit  web.RateLimit
}

func (l *limitedError) Error() string { return l.answer.Error() }

// Unwrap returns the 429 for errors.As.
func (l *limitedError) Unwrap() error { return l.answer }
