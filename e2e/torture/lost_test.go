package torture

import (
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// G11: a client repeats a request whose response was lost, with the same Idempotency-Key.

const (
	refreshesPerExchange = 8
	thiefEach            = 10 // every tenth cut, a thief tries
)

// TestLostAnswers_CostNoGrant cuts connections after each byte of the request and of the response. The client repeats
// the request and gets the token of the lost response. A thief with the token but without the key gets no token, and
// the grant is revoked.
func TestLostAnswers_CostNoGrant(t *testing.T) {
	cuts := harness.Rounds(24, 10_000)
	var replayed atomic.Int64
	harness.Record(t, "%d connections cut, 0 grants lost; %v answers given again", cuts,
		harness.Deferred[int64](replayed.Load))
	running := startedPair(t)
	servers := []string{running.BaseURL, running.Authservers[0].URL, running.Authservers[1].URL}
	var workers atomic.Int64
	p := enterPair(t)
	spread(t, cuts, func(t *testing.T) func(*testing.T) {
		worker := int(workers.Add(1))
		l := &lossyClient{
			site:     siteOf(t, p),
			cutter:   NewCutter(hostOf(t, servers[worker%3])),
			turn:     worker * cuts / 4, // each worker cuts at other bytes
			replayed: &replayed,
		}
		l.relayed = l.connector.At(harness.NewProductWithTransport(t, running, &seenSecrets, l.cutter.Transport()))
		l.tokens = l.connector.Connect(t, l.owner)
		return l.round
	})
}

// A lossyClient is a client that loses responses.
type lossyClient struct {
	site
	relayed  harness.Connector // sends its requests through the cutter
	cutter   *Cutter
	replayed *atomic.Int64

	tokens harness.Tokens
	turn   int
}

// round cuts one connection. Over many rounds, the cuts cover each byte of both directions.
func (l *lossyClient) round(t *testing.T) {
	l.turn++
	form := l.connector.RefreshForm(l.tokens.RefreshToken)
	if l.turn%refreshesPerExchange == 0 {
		attempt := l.connector.Begin()
		form = attempt.CodeForm(attempt.Code(t, l.owner))
	}
	if l.cutter.Size(OfAnswer) == 0 {
		l.tokens = l.relayed.Post(t, form, harness.NewKey()).Tokens(t)
		return
	}
	const stride = 7919 // a prime, so that the cuts cover each byte
	of := Direction(l.turn % 2)
	l.cutter.CutNext(of, l.turn/2*stride%(l.cutter.Size(of)+1))
	key := harness.NewKey()
	partial, err := l.relayed.TryPost(t, form, key)
	again := l.connector.Post(t, form, key)
	if again.Status != http.StatusOK {
		t.Fatalf("a lost answer cost the grant (%v):\n%s", err, again)
	}
	tokens := again.Tokens(t)
	if again.Header.Get("Idempotency-Replayed") == "true" {
		l.replayed.Add(1)
	}
	if got, whole := refreshTokenIn(partial.Body); whole && got != tokens.RefreshToken {
		t.Fatal("the answer has another refresh token than the one that was lost")
	}
	if l.turn%thiefEach == 0 {
		l.replaysWithoutKey(t, form, key, tokens)
		tokens = l.connector.Connect(t, l.owner)
	}
	l.tokens = tokens
}

// refreshTokenIn returns the refresh token in a response that may be cut, and whether the token is complete.
func refreshTokenIn(body []byte) (string, bool) {
	_, rest, found := strings.Cut(string(body), `"refresh_token":"`)
	token, _, whole := strings.Cut(rest, `"`)
	return token, found && whole
}

// replaysWithoutKey presents the credential of a lost response without its key. The thief gets no token, and the grant
// is revoked.
func (l *lossyClient) replaysWithoutKey(t *testing.T, form url.Values, key string, tokens harness.Tokens) {
	t.Helper()
	guess := map[int]string{0: "", 1: harness.NewKey(), 2: key + "x"}[l.turn/thiefEach%3]
	answer := l.connector.Post(t, form, guess)
	if answer.Status != http.StatusBadRequest {
		t.Fatalf("a thief without the key got a token:\n%s", answer)
	}
	l.connector.Post(t, form, key).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	l.connector.WantsRevoked(t, tokens)
}

// TestOneKeyRace_GivesOneToken sends the same request with the same key concurrently, through two processes. All
// callers get the same token, and it works. A request with another key revokes the grant.
func TestOneKeyRace_GivesOneToken(t *testing.T) {
	times := harness.Rounds(8, 2_000)
	harness.Record(t, "%d races of 2 to 16 with one key", times)
	var turn atomic.Int64
	spreadSites(t, times, func(t *testing.T, s site) {
		connector, owner := s.connector, s.owner
		racers := []int{2, 3, 4, 16}[turn.Add(1)%4]
		attempt := connector.Begin()
		form := attempt.CodeForm(attempt.Code(t, owner))
		first := sameToken(t, racers, func(key string) harness.Answer { return attempt.Post(t, form, key) })
		second := sameToken(t, racers, func(key string) harness.Answer {
			return connector.Refresh(t, first.RefreshToken, key)
		})
		third := connector.WantsWorking(t, second)
		connector.Refresh(t, second.RefreshToken, harness.NewKey()).
			WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		connector.WantsRevoked(t, third)
	})
}

func sameToken(t *testing.T, racers int, send func(key string) harness.Answer) harness.Tokens {
	t.Helper()
	key := harness.NewKey()
	given := raced(t, racers, func(int) harness.Answer { return send(key) })
	if len(given) < racers {
		t.Fatalf("a caller with the key was refused: %d of %d got tokens", len(given), racers)
	}
	if others := different(given); len(others) != 1 {
		t.Fatalf("callers with one key got %d different tokens", len(others))
	}
	return given[0]
}

// different returns the different refresh tokens.
func different(tokens []harness.Tokens) map[string]bool {
	all := map[string]bool{}
	for _, one := range tokens {
		all[one.RefreshToken] = true
	}
	return all
}

// TestThiefRace_EndsGrant presents one token concurrently: a client repeats its request, and thieves do not have its
// key. At most one new token is issued, and the grant is revoked.
func TestThiefRace_EndsGrant(t *testing.T) {
	times := harness.Rounds(8, 2_000)
	harness.Record(t, "%d races of a client that repeats its request and two thieves", times)
	spreadSites(t, times, func(t *testing.T, s site) {
		connector, owner := s.connector, s.owner
		tokens := connector.Connect(t, owner)
		key := harness.NewKey()
		keys := []string{key, key, "", harness.NewKey()}
		given := raced(t, len(keys), func(i int) harness.Answer {
			return connector.Refresh(t, tokens.RefreshToken, keys[i])
		})
		if others := different(given); len(others) != 1 {
			t.Fatalf("%d different tokens were given", len(others))
		}
		connector.WantsRevoked(t, given[0], tokens)
	})
}
