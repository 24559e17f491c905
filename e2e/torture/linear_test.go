package torture

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

const (
	callersEach = 3
	callsEach   = 9
	checkWithin = 20 * time.Second
	codeLife    = 55 * time.Second // the limit is 60 s; this one is by our clock, from before the request of the code
)

// historiesStack is the stack of these tests: in the short form the pair, which no test that runs in parallel uses. Its
// requests wait for the stores as in production.
var historiesStack = &turnstile{
	options: harness.Options{Authservers: 2, Settings: harness.AsInProduction()},
	start: sync.OnceValues(func() (*stack.Stack, error) {
		s, err := pair()
		if err != nil {
			return nil, err
		}
		for _, service := range append(s.Authservers, s.Resourceapi) {
			for name, value := range harness.AsInProduction() {
				service.Set(name, value)
			}
			err = cmp.Or(err, service.Restart(context.Background()))
		}
		return s, err
	}),
}

// TestHistories_OfGrantsAreLinearizable lets clients use, refresh, replay and revoke grants through two processes while
// stores and processes crash, freeze and lose data. The model must allow each grant's history (linearizability).
func TestHistories_OfGrantsAreLinearizable(t *testing.T) {
	leastCalls, leastFaults := harness.Rounds(1_000, 240_000), harness.Rounds(8, 600)
	historiesOf(t, "faults", harness.Rounds(5, 360), false, (*grantHistory).play, (*trouble).makeSome,
		func(calls, _, faults int) bool { return calls >= leastCalls && faults >= leastFaults })
}

// TestHistories_OfStalledGrantsAreLinearizable only freezes Redis and Postgres. A 503 to an honest client must mean
// that nothing changed, whichever of two processes gets the retry, and a superseded token must still revoke its grant.
func TestHistories_OfStalledGrantsAreLinearizable(t *testing.T) {
	historiesOf(t, "stalls", harness.Rounds(2, 100), true, (*grantHistory).playOn, (*trouble).stall,
		func(_, refused, _ int) bool { return refused > 0 }) // the stalls have met calls
}

// historiesOf checks batches of grants, with three callers each that play while there is trouble, until there are as
// many as asked and enough has happened.
func historiesOf(t *testing.T, what string, batches int, stalled bool, play func(*grantHistory, *testing.T, bool),
	makeTrouble func(*trouble, *testing.T), enough func(calls, refused, faults int) bool,
) {
	parallelIfShort(t)
	running := historiesStack.enter(t)
	s := newSite(t, running)
	trouble := newTrouble(running)
	calls, refused, grantsAtOnce := 0, 0, harness.Rounds(10, 30)
	harness.Record(t, "%d grants, %v calls, %v %s", batches*grantsAtOnce,
		harness.Deferred[int](func() int { return calls }), harness.Deferred[int](trouble.faults), what)
	for batch := 0; batch < batches || !enough(calls, refused, trouble.faults()); batch++ {
		s.Database.Reconnect()
		histories := make([]*grantHistory, grantsAtOnce)
		for i := range histories {
			histories[i] = newHistory(t, s)
			histories[i].stalled = stalled
		}
		var group sync.WaitGroup
		for _, one := range histories {
			for first := range callersEach {
				group.Go(func() { play(one, t, first == 0) })
			}
		}
		group.Go(func() { makeTrouble(trouble, t) })
		group.Wait()
		for _, one := range histories {
			calls += len(one.history)
			refused += one.count(unavailable)
			one.check(t, trouble)
		}
		if t.Failed() {
			return
		}
	}
}

// count returns the number of calls with this outcome.
func (s *grantHistory) count(is string) int {
	other := func(o porcupine.Operation) bool { return o.Output.(outcome).is != is }
	return len(slices.DeleteFunc(slices.Clone(s.history), other))
}

// A grantHistory is one grant and the operations on it.
type grantHistory struct {
	stalled   bool // stores only freeze: a call with a 503 did not happen
	connector harness.Connector
	attempt   harness.Attempt
	code      string
	began     time.Time

	mu      sync.Mutex
	keys    map[int]string // Idempotency-Keys of the honest caller, by number of the credential
	tokens  []token        // all issued tokens; a token's number is its index
	history []porcupine.Operation
}

type token struct {
	harness.Tokens
	generation int
}

func newHistory(t *testing.T, of site) *grantHistory {
	t.Helper()
	s := &grantHistory{connector: of.connector}
	await.True(t, "a consent succeeds after the last fault", func() bool {
		s.attempt, s.began = s.connector.Begin(), time.Now()
		s.code = tryCode(t, s.attempt, of.owner)
		return s.code != ""
	})
	return s
}

// play makes random calls. The first caller redeems the code and refreshes, with an Idempotency-Key for each
// credential, and repeats requests whose response was lost. The others mostly use existing tokens.
func (s *grantHistory) play(t *testing.T, first bool) {
	for i := range callsEach {
		time.Sleep(rand.N(160 * time.Millisecond))
		known := s.known()
		dice := rand.IntN(100)
		switch {
		case first && (i == 0 || len(known) == 0):
			s.exchange(t, true)
		case len(known) == 0 && dice < 25, dice < 2:
			s.exchange(t, false)
		case len(known) == 0:
		case dice < 3:
			s.revoke(t, known[len(known)-1])
		case dice < 9:
			s.refresh(t, known, rand.IntN(len(known)), false)
		case first && dice < 20:
			s.refresh(t, known, max(0, len(known)-2), true)
		case first && dice < 65:
			s.refresh(t, known, len(known)-1, true)
		case dice < 15:
			s.refresh(t, known, len(known)-1, false)
		default:
			s.use(t, known[rand.IntN(len(known))])
		}
	}
}

// playOn is like play, but only one caller presents the current token, until it is refused. Two callers that present it
// concurrently race, which revokes the grant whatever responses they get.
func (s *grantHistory) playOn(t *testing.T, honest bool) {
	for range callsEach {
		time.Sleep(rand.N(160 * time.Millisecond))
		known := s.known()
		dice := rand.IntN(100)
		switch {
		case honest && len(known) == 0:
			s.exchange(t, dice < 50)
		case honest && dice < 80:
			s.refresh(t, known, len(known)-1, dice < 40)
		case len(known) == 0:
		case !honest && dice < 3 && len(known) > 1:
			s.refresh(t, known, rand.IntN(len(known)-1), false)
		default:
			s.use(t, known[rand.IntN(len(known))])
		}
	}
}

func (s *grantHistory) known() []token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[:len(s.tokens):len(s.tokens)]
}

func (s *grantHistory) exchange(t *testing.T, keyed bool) {
	s.present(t, call{does: "exchange", token: code}, 1, s.attempt.CodeForm(s.code), keyed)
}

func (s *grantHistory) refresh(t *testing.T, known []token, number int, keyed bool) {
	old := known[number]
	c := call{does: "refresh", token: number, of: old.generation}
	s.present(t, c, old.generation+1, s.connector.RefreshForm(old.RefreshToken), keyed)
}

// present sends a code or a refresh token, with the Idempotency-Key of that credential or without one.
func (s *grantHistory) present(t *testing.T, c call, generation int, form url.Values, keyed bool) {
	key := ""
	if keyed {
		c.key, key = 1, s.keyOf(c.token)
	}
	send := func() (harness.Answer, error) { return s.connector.TryPost(t, form, key) }
	s.record(t, c, generation, send)
}

func (s *grantHistory) keyOf(credential int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[int]string{}
	}
	if s.keys[credential] == "" {
		s.keys[credential] = harness.NewKey()
	}
	return s.keys[credential]
}

func (s *grantHistory) use(t *testing.T, with token) {
	s.record(t, call{does: "use"}, 0, func() (harness.Answer, error) { return tryList(t, s.connector, with.Tokens) })
}

func (s *grantHistory) revoke(t *testing.T, with token) {
	s.record(t, call{does: "revoke"}, 0,
		func() (harness.Answer, error) { return tryRevoke(t, s.connector, with.RefreshToken) })
}

// record makes a call, stores the tokens of the given generation that it returns, and adds the call to the history.
func (s *grantHistory) record(t *testing.T, c call, generation int, send func() (harness.Answer, error)) {
	began := time.Now()
	answer, err := send()
	ended := time.Now()
	o := outcome{is: unknown}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stalled && err == nil && answer.Status == http.StatusServiceUnavailable && generation > 0:
		o.is = unavailable
	case err != nil || answer.Status == http.StatusServiceUnavailable || answer.Status == http.StatusBadGateway:
	case answer.Status == http.StatusOK:
		o.is = ok
		if generation > 0 {
			o.token = s.number(token{answer.Tokens(t), generation})
		}
	case answer.Status == http.StatusBadRequest || (answer.Status == http.StatusUnauthorized && c.does == "use"):
		o.is = refused
	default:
		t.Errorf("unexpected response to %s:\n%s", c.does, answer)
	}
	s.history = append(s.history,
		porcupine.Operation{Input: c, Call: began.UnixNano(), Output: o, Return: ended.UnixNano()})
}

// number returns the number of a token, which may have been issued before. It is called with mu held.
func (s *grantHistory) number(issued token) int {
	same := func(one token) bool { return one.RefreshToken == issued.RefreshToken }
	if known := slices.IndexFunc(s.tokens, same); known >= 0 {
		return known
	}
	s.tokens = append(s.tokens, issued)
	return len(s.tokens) - 1
}

// check verifies that the history is legal. A call with an unknown outcome may happen at any later time.
func (s *grantHistory) check(t *testing.T, trouble *trouble) {
	t.Helper()
	for i := range s.history {
		operation := &s.history[i]
		if c := operation.Input.(call); c.does == "exchange" || c.does == "refresh" {
			c.forgotten = time.Unix(0, operation.Return).Sub(s.began) > codeLife ||
				trouble.memoryLostBetween(s.began.UnixNano(), operation.Return)
			operation.Input = c
		}
		if is := operation.Output.(outcome).is; is == unknown || is == unavailable {
			operation.Return = math.MaxInt64
		}
	}
	switch porcupine.CheckOperationsTimeout(grantModel(), s.history, atMost(checkWithin)) {
	case porcupine.Illegal:
		t.Errorf("an illegal history of a grant; faults: %v", trouble.after(s.began))
		for _, operation := range s.history {
			t.Logf("%6d to %6d ms: %+v → %+v", (operation.Call-s.began.UnixNano())/1e6,
				(operation.Return-s.began.UnixNano())/1e6, operation.Input, operation.Output)
		}
	case porcupine.Unknown:
		t.Error("the checker did not finish")
	}
}

// A call is an operation on one grant. The test numbers the tokens itself.
type call struct {
	does  string // exchange, refresh, use or revoke
	token int    // refresh: its number
	of    int    // refresh: its generation
	key   int    // exchange, refresh: number of the Idempotency-Key; 0 without one
	// forgotten: before the response, Redis may have lost the unused code or the time of the last step, or 60 seconds
	// may have passed.
	forgotten bool
}

// An outcome is the result of a call. Unknown is a 503 or no response: the call happened, did not happen, or may still
// happen. Unavailable is a 503 from a process that stays alive: an honest exchange or refresh did not happen (G10).
type outcome struct {
	is    string // ok, refused, unknown or unavailable
	token int    // ok: the new refresh token
}

const (
	ok      = "ok"
	refused = "refused"
	unknown = "unknown"

	unavailable = "unavailable"
)

// A grantState is the state of a grant in the model. The current token is lost if its response was lost.
type grantState struct {
	state      string // pending, active or revoked
	generation int
	current    int
	from, key  int // credential and key for which the current token was given
}

const (
	lost = -1
	code = -2 // instead of the number of a token
)

// repeats reports whether a call repeats the one that got the current token, and so gets this token again.
func (l grantState) repeats(credential int, c call) bool {
	return l.state == "active" && c.key != 0 && l.from == credential && l.key == c.key
}

// repeated returns the possible next states of such a call (G11).
func (l grantState) repeated(c call, o outcome) []grantState {
	switch {
	case o.is == ok && (l.current == lost || l.current == o.token):
		l.current = o.token
		return []grantState{l}
	case o.is != ok && c.forgotten:
		return []grantState{{state: "revoked"}}
	}
	return nil
}

// grantModel accepts the histories of one grant that G1 to G9 and G11 allow. The order of the calls may be any in which
// a call that ended before another began comes first.
func grantModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{grantState{state: "pending"}} },
		Step: func(state, input, output any) []any {
			var next []any
			for _, l := range statesAfter(state.(grantState), input.(call), output.(outcome)) {
				next = append(next, l)
			}
			return next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
	return model.ToModel()
}

// statesAfter returns the possible next states; none means that the outcome is illegal.
func statesAfter(l grantState, c call, o outcome) []grantState {
	var next []grantState
	if o.is == unknown || o.is == unavailable {
		next = append(next, l) // the call did not happen
	}
	revoked := grantState{state: "revoked"}
	switch c.does {
	case "exchange":
		next = append(next, exchanged(l, c, o, revoked)...)
	case "refresh":
		next = append(next, refreshed(l, c, o, revoked)...)
	case "revoke":
		if o.is != refused {
			next = append(next, revoked)
		}
	case "use":
		if (o.is == ok) == (l.state == "active") && o.is != unknown {
			next = append(next, l)
		}
	}
	return next
}

func exchanged(l grantState, c call, o outcome, revoked grantState) []grantState {
	switch {
	case l.state == "pending" && o.is == ok:
		return []grantState{{"active", 1, o.token, code, c.key}}
	case l.state == "pending" && o.is == unknown:
		return []grantState{{"active", 1, lost, code, c.key}}
	case l.repeats(code, c):
		return l.repeated(c, o)
	case l.state == "pending" && c.forgotten:
		return []grantState{l}
	case l.state == "active" && o.is != ok: // G1
		return []grantState{revoked}
	case l.state == "revoked" && o.is == refused:
		return []grantState{l}
	}
	return nil
}

func refreshed(l grantState, c call, o outcome, revoked grantState) []grantState {
	current := l.state == "active" && l.current == c.token
	switch {
	case current && o.is == ok:
		return []grantState{{"active", l.generation + 1, o.token, c.token, c.key}}
	case current && o.is == unknown:
		return []grantState{{"active", l.generation + 1, lost, c.token, c.key}}
	case l.repeats(c.token, c):
		return l.repeated(c, o)
	case l.state == "active" && c.of < l.generation && o.is != ok: // G3
		return []grantState{revoked}
	case l.state == "revoked" && o.is == refused:
		return []grantState{l}
	}
	return nil
}
