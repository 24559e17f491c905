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
		ws, worker := p.NewWorkspace(t), int(workers.Add(1))
		l := &lossyClient{
			Product:   p,
			connector: ws.Connector(t, harness.ReadProgrammes),
			owner:     p.Person(t, ws.Owner),
			cutter:    NewCutter(t, hostOf(t, servers[worker%3])),
			turn:      worker * cuts / 4, // each worker cuts at other bytes
			replayed:  &replayed,
		}
		l.relayed = l.connector.At(harness.NewProductWithTransport(t, running, &seenSecrets, l.cutter.Transport()))
		l.tokens = l.connector.Connect(t, l.owner)
		return l.round
	})
}

// A lossyClient is a client that loses responses.
type lossyClient struct {
	*harness.Product
	connector harness.Connector
	relayed   harness.Connector // sends its requests through the cutter
	owner     *harness.Person
	cutter    *Cutter
	replayed  *atomic.Int64

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
	spreadConnectors(t, times, func(t *testing.T, connector harness.Connector, owner *harness.Person) {
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
	var tokens harness.Tokens
	for _, answer := range harness.Concurrently(racers, func(int) harness.Answer { return send(key) }) {
		if answer.Status != http.StatusOK {
			t.Fatalf("a caller with the key was refused:\n%s", answer)
		}
		got := answer.Tokens(t)
		if tokens.RefreshToken != "" && got.RefreshToken != tokens.RefreshToken {
			t.Fatal("callers with one key got different tokens")
		}
		tokens = got
	}
	return tokens
}

// TestThiefRace_EndsGrant presents one token concurrently: a client repeats its request, and thieves do not have its
// key. At most one new token is issued, and the grant is revoked.
func TestThiefRace_EndsGrant(t *testing.T) {
	times := harness.Rounds(8, 2_000)
	harness.Record(t, "%d races of a client that repeats its request and two thieves", times)
	spreadConnectors(t, times, func(t *testing.T, connector harness.Connector, owner *harness.Person) {
		tokens := connector.Connect(t, owner)
		key := harness.NewKey()
		keys := []string{key, key, "", harness.NewKey()}
		given := map[string]harness.Tokens{}
		for _, answer := range harness.Concurrently(len(keys), func(i int) harness.Answer {
			return connector.Refresh(t, tokens.RefreshToken, keys[i])
		}) {
			if answer.Status == http.StatusOK {
				got := answer.Tokens(t)
				given[got.RefreshToken] = got
			} else {
				answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			}
		}
		if len(given) != 1 {
			t.Fatalf("%d different tokens were given", len(given))
		}
		for _, got := range given {
			connector.WantsRevoked(t, got, tokens)
		}
	})
}

func TestRepeat_IsRefusedLikeFirstRequest(t *testing.T) {
	times := harness.Rounds(1, 100)
	harness.Record(t, "%d requests each repeated after the grant, the access or the time ended or Redis lost it", times)
	p := enterPair(t)
	for range times {
		for name, ending := range repeatEndings(p, startedPair(t).RedisURL) {
			c := newConnection(t, p, p.NewWorkspace(t))
			presented, key := c.tokens.RefreshToken, harness.NewKey()
			lost := c.connector.Refresh(t, presented, key).Tokens(t)
			c.tokens = lost
			ending.end(t, &c)
			answer := c.connector.Refresh(t, presented, key)
			if answer.Status != http.StatusBadRequest {
				t.Fatalf("%s: a repeated request got a token:\n%s", name, answer)
			}
			if ending.lift == nil {
				c.connector.Refresh(t, c.tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
				continue
			}
			ending.lift(t, &c)
			if again := c.connector.Refresh(t, presented, key); again.Status != http.StatusOK ||
				again.Tokens(t).RefreshToken != lost.RefreshToken {
				t.Fatalf("%s: the refusal consumed the token:\n%s", name, again)
			}
			c.connector.WantsWorking(t, lost)
		}
	}
}

// A repeatEnding removes a condition of a request. lift restores it; the refusal must have consumed nothing. Without
// lift, the grant must be revoked or expired.
type repeatEnding struct{ end, lift func(*testing.T, *connection) }

func repeatEndings(p *harness.Product, redisURL string) map[string]repeatEnding {
	const read = harness.ReadProgrammes
	in := p.Database
	return map[string]repeatEnding{
		"revoked": {end: func(t *testing.T, c *connection) {
			c.connector.Revoke(t, c.tokens.RefreshToken).Wants(t, http.StatusOK)
		}},
		"successor used": {end: func(t *testing.T, c *connection) {
			c.tokens = c.connector.Refresh(t, c.tokens.RefreshToken).Tokens(t)
		}},
		"60 s over": {end: func(t *testing.T, c *connection) {
			tell(t, redisURL, "HINCRBY g:{"+harness.GrantOf(t, c.tokens.AccessToken)+"} at -60000")
		}},
		"Redis lost the grant": {end: func(t *testing.T, c *connection) {
			tell(t, redisURL, "DEL g:{"+harness.GrantOf(t, c.tokens.AccessToken)+"}")
		}},
		"grant over": {end: func(t *testing.T, c *connection) {
			in.EndGrantIn(t, harness.GrantOf(t, c.tokens.AccessToken), -1e9)
		}},
		"policy lowered": {end: func(t *testing.T, c *connection) {
			p.LimitConnectors(t, c.ws, "30", []string{"chatgpt", "other"}, harness.ForConnectors())
		}},
		"membership over": {
			end:  func(t *testing.T, c *connection) { in.Leave(t, c.ws.Workspace, c.member.User) },
			lift: func(t *testing.T, c *connection) { in.Join(t, c.ws.Workspace, c.member.User, read) },
		},
		"permissions lost": {
			end:  func(t *testing.T, c *connection) { in.Permit(t, c.ws.Workspace, c.member.User) },
			lift: func(t *testing.T, c *connection) { in.Permit(t, c.ws.Workspace, c.member.User, read) },
		},
		"LLM integration off": {
			end:  func(t *testing.T, c *connection) { in.SetLLM(t, c.ws.Workspace, false) },
			lift: func(t *testing.T, c *connection) { in.SetLLM(t, c.ws.Workspace, true) },
		},
	}
}
