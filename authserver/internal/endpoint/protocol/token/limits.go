package token

import (
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/web"
)

// limited counts a refusal that may come from guessing or repeating, and replaces it by a 429 if there were too many
// (contract, section 3). A request that cannot be read, or has no secret and no token, is cheap and is not counted.
func (e Endpoints) limited(w http.ResponseWriter, request engine.TokenRequest, err error) error {
	refused, isRefusal := errors.AsType[*engine.TokenError](err)
	if !isRefusal {
		return err
	}
	switch refused.Code {
	case "invalid_grant", "invalid_target", "invalid_scope":
		if presented, authentic := engine.Presented(e.Grants, request); authentic {
			return after(w, e.Failures.ForGrant(presented.GrantID), "refusals-per-grant", ratelimit.PerGrant, err)
		}
	}
	return e.limitedClient(w, request.ClientID, err)
}

// limitedClient counts err if it refuses the client's authentication or grant, and replaces it by a 429 if there were
// too many. It returns other errors unchanged.
func (e Endpoints) limitedClient(w http.ResponseWriter, name string, err error) error {
	refused, isRefusal := errors.AsType[*engine.TokenError](err)
	if !isRefusal ||
		(refused.Code != "invalid_client" && refused.Code != "invalid_grant" && refused.Code != "invalid_target") {
		return err
	}
	return after(w, e.Failures.ForClient(name), "refusals-per-client", ratelimit.PerClient, err)
}

// after returns err if there is no time to wait. Otherwise it sets the headers of the limit and returns the 429.
func after(w http.ResponseWriter, wait time.Duration, name string, perMinute int, err error) error {
	if wait <= 0 {
		return err
	}
	web.SetRateLimits(w.Header(), web.RateLimit{Name: name, Quota: perMinute, Window: time.Minute, Reset: wait})
	tooMany := apierr.New(
		apierr.RateLimited,
		"Too many requests like this one failed. Try again after the time in Retry-After. Valid requests are not "+
			"limited.",
	)
	tooMany.RetryAfter = int(math.Ceil(wait.Seconds()))
	return tooMany
}
