package torture

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A script has run, and its reply is lost or replaced by another reply, as on a desynchronized connection. The
// request is retried or gets 503: no caller gets the data of another, no grant ends, and the credential works
// afterwards.
func TestReplies_LostOrMixedUp(t *testing.T) {
	t.Parallel()
	relay := NewRedisRelay(t)
	running := harness.Private(t, harness.Options{RedisURL: relay.URL, RedisDir: relay.Dir, StopsStores: true})
	s := newSite(t, running)
	connector, owner := s.connector, s.owner
	connector.Connect(t, owner) // so that there is an "ok" reply

	t.Run("one is lost", func(t *testing.T) {
		attempt := connector.Begin()
		form := attempt.CodeForm(attempt.Code(t, owner))
		relay.Lose(1)
		tokens := attempt.Post(t, form).Tokens(t)
		relay.WantsDone(t)
		relay.Lose(1)
		tokens = connector.WantsWorking(t, tokens)
		relay.WantsDone(t)
		connector.WantsWorking(t, tokens)
	})
	for name, spoil := range map[string]func(*testing.T){
		"none comes":     func(*testing.T) { relay.Lose(EveryAnswer) },
		"all are others": func(t *testing.T) { relay.Mistake(t, "ok", EveryAnswer) },
	} {
		t.Run(name, func(t *testing.T) {
			tokens, attempt := connector.Connect(t, owner), connector.Begin()
			form := attempt.CodeForm(attempt.Code(t, owner))
			requests := []func() harness.Answer{ // each waits for Redis
				func() harness.Answer { return attempt.Post(t, form) },
				func() harness.Answer { return connector.Refresh(t, tokens.RefreshToken) },
			}
			spoil(t)
			refused := harness.Concurrently(len(requests), func(i int) harness.Answer { return requests[i]() })
			relay.Stop(t)
			for i, request := range requests { // the decisions have been undone by then
				refused[i].WantsRetryAfter(t).WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
				var answer harness.Answer
				await.True(t, "Redis is used again", func() bool { // on a busy machine later than at once
					answer = request()
					return answer.Status != http.StatusServiceUnavailable
				})
				connector.WantsWorking(t, connector.WantsWorking(t, answer.Tokens(t)))
			}
		})
	}
	t.Run("another's yes", func(t *testing.T) {
		attempt := connector.Begin()
		form := attempt.CodeForm(attempt.Code(t, owner))
		form.Set("code_verifier", connector.Begin().Verifier)
		relay.Mistake(t, "ok", 1)
		refused := attempt.Post(t, form)
		relay.WantsDone(t)
		refused.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		form.Set("code_verifier", attempt.Verifier)
		connector.WantsWorking(t, attempt.Post(t, form).Tokens(t))
	})
	t.Run("another's end", func(t *testing.T) {
		guessed := connector.Begin()
		form := guessed.CodeForm(guessed.Code(t, owner))
		form.Set("code_verifier", connector.Begin().Verifier)
		for range 5 {
			guessed.Post(t, form).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		}
		attempt := connector.Begin()
		form = attempt.CodeForm(attempt.Code(t, owner))
		relay.Mistake(t, "burned", 1)
		tokens := attempt.Post(t, form).Tokens(t)
		relay.WantsDone(t)
		connector.WantsWorking(t, tokens)
	})
}
