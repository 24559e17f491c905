package torture

import (
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/almonerhq/almoner/e2e/harness"
)

const (
	storiesAtOnce = 30
	callersEach   = 3
	callsEach     = 9
	checkWithin   = 20 * time.Second
	codeLife      = 55 * time.Second // of 60, by our clock
)

// Clients use, refresh, replay and revoke grants through two processes while stores and processes crash, freeze and
// lose their memory. Each grant's history must be one that the model allows (linearizability).
func TestHistoriesOfGrantsAreLegal(t *testing.T) {
	batches := harness.Rounds(11, 360)
	running := harness.Private(t, harness.Options{Authservers: 2})
	p := harness.Enter(t, running, &met)
	office := p.Office(t)
	connector, head := office.Connector(t, harness.ReadProgrammes), p.Person(t, office.Head)
	trouble := newTrouble(running)
	operations := 0
	harness.Note(
		t,
		"%d grants, %v calls, %v faults",
		batches*storiesAtOnce,
		harness.Later[int](func() int { return operations }),
		harness.Later[int](trouble.faults),
	)
	for range batches {
		p.World.Reconnect()
		stories := make([]*story, storiesAtOnce)
		for i := range stories {
			stories[i] = newStory(t, connector, head)
		}
		var group sync.WaitGroup
		for _, s := range stories {
			for first := range callersEach {
				group.Go(func() { s.play(t, first == 0) })
			}
		}
		group.Go(func() { trouble.makeSome(t) })
		group.Wait()
		for _, s := range stories {
			operations += len(s.history)
			s.check(t, trouble)
		}
		if t.Failed() {
			return
		}
	}
	if leastCalls, leastFaults := harness.Rounds(7_000, 240_000), harness.Rounds(15, 600); operations < leastCalls ||
		trouble.faults() < leastFaults {
		t.Errorf(
			"%d calls and %d faults are too few to say anything, want %d and %d",
			operations,
			trouble.faults(),
			leastCalls,
			leastFaults,
		)
	}
}

// Redis and Postgres freeze, and nothing else happens to anyone: every 503 to an honest client must have changed
// nothing, whichever of two processes gets the retry, and a superseded token still ends its grant.
func TestHistoriesOfStalledGrantsAreLegal(t *testing.T) {
	batches := harness.Rounds(4, 100)
	running := harness.Private(t, harness.Options{Authservers: 2})
	p := harness.Enter(t, running, &met)
	office := p.Office(t)
	connector, head := office.Connector(t, harness.ReadProgrammes), p.Person(t, office.Head)
	trouble := newTrouble(running)
	operations := 0
	harness.Note(t, "%d grants, %v calls, %v stalls", batches*storiesAtOnce,
		harness.Later[int](func() int { return operations }), harness.Later[int](trouble.faults))
	for range batches {
		stories := make([]*story, storiesAtOnce)
		for i := range stories {
			stories[i] = newStory(t, connector, head)
			stories[i].stalled = true
		}
		var group sync.WaitGroup
		for _, s := range stories {
			for first := range callersEach {
				group.Go(func() { s.playOn(t, first == 0) })
			}
		}
		group.Go(func() { trouble.stall(t) })
		group.Wait()
		for _, s := range stories {
			operations += len(s.history)
			s.check(t, trouble)
		}
		if t.Failed() {
			return
		}
	}
}

// A story is one grant and what was done with it.
type story struct {
	stalled   bool // stores freeze, and nothing else: what is answered 503 did not happen
	connector harness.Connector
	attempt   harness.Attempt
	code      string
	began     time.Time

	mu      sync.Mutex
	tokens  []token // all that somebody got; their number is their place
	history []porcupine.Operation
}

type token struct {
	harness.Tokens
	generation int
}

func newStory(t *testing.T, connector harness.Connector, head *harness.Person) *story {
	t.Helper()
	for end := time.Now().Add(calmWithin); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		attempt := connector.Begin()
		if code := attempt.TryCode(t, head); code != "" {
			return &story{connector: connector, attempt: attempt, code: code, began: time.Now()}
		}
	}
	t.Fatalf("no consent goes through within %s of the last fault", calmWithin)
	return nil
}

// play makes calls at random. The first caller redeems the code and refreshes; the others mostly use what there is.
func (s *story) play(t *testing.T, first bool) {
	for i := range callsEach {
		time.Sleep(rand.N(160 * time.Millisecond))
		known := s.known()
		dice := rand.IntN(100)
		switch {
		case first && i == 0, len(known) == 0 && dice < 25, dice < 2:
			s.exchange(t)
		case len(known) == 0:
		case dice < 3:
			s.revoke(t, known[len(known)-1])
		case dice < 9:
			s.refresh(t, known, rand.IntN(len(known)))
		case first && dice < 65, dice < 15:
			s.refresh(t, known, len(known)-1)
		default:
			s.use(t, known[rand.IntN(len(known))])
		}
	}
}

// playOn is play of a grant whose current token one caller alone presents, for as long as it is not refused: two who
// present it at once are a race, which revokes the grant whatever either is told.
func (s *story) playOn(t *testing.T, honest bool) {
	for range callsEach {
		time.Sleep(rand.N(160 * time.Millisecond))
		known := s.known()
		dice := rand.IntN(100)
		switch {
		case honest && len(known) == 0:
			s.exchange(t)
		case honest && dice < 80:
			s.refresh(t, known, len(known)-1)
		case len(known) == 0:
		case !honest && dice < 3 && len(known) > 1:
			s.refresh(t, known, rand.IntN(len(known)-1))
		default:
			s.use(t, known[rand.IntN(len(known))])
		}
	}
}

func (s *story) known() []token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[:len(s.tokens):len(s.tokens)]
}

func (s *story) exchange(t *testing.T) {
	s.record(
		t,
		call{does: "exchange"},
		1,
		func() (harness.Answer, error) { return s.attempt.TryPost(t, s.attempt.CodeForm(s.code)) },
	)
}

func (s *story) refresh(t *testing.T, known []token, number int) {
	old := known[number]
	s.record(
		t,
		call{does: "refresh", token: number, of: old.generation},
		old.generation+1,
		func() (harness.Answer, error) {
			return s.connector.TryPost(t, s.connector.RefreshForm(old.RefreshToken))
		},
	)
}

func (s *story) use(t *testing.T, with token) {
	s.record(t, call{does: "use"}, 0, func() (harness.Answer, error) { return s.connector.TryList(t, with.Tokens) })
}

func (s *story) revoke(t *testing.T, with token) {
	s.record(
		t,
		call{does: "revoke"},
		0,
		func() (harness.Answer, error) { return s.connector.TryRevoke(t, with.RefreshToken) },
	)
}

// record makes a call, keeps the tokens of generation that it may bring, and adds it to the history.
func (s *story) record(t *testing.T, c call, generation int, send func() (harness.Answer, error)) {
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
			o.token = len(s.tokens)
			s.tokens = append(s.tokens, token{answer.Tokens(t), generation})
		}
	case answer.Status == http.StatusBadRequest || (answer.Status == http.StatusUnauthorized && c.does == "use"):
		o.is = refused
	default:
		t.Errorf("no answer of this kind was expected to %s:\n%s", c.does, answer)
	}
	s.history = append(
		s.history,
		porcupine.Operation{Input: c, Call: began.UnixNano(), Output: o, Return: ended.UnixNano()},
	)
}

// check asks whether the history is legal. A call whose outcome is unknown may happen at any later time.
func (s *story) check(t *testing.T, trouble *trouble) {
	t.Helper()
	for i := range s.history {
		operation := &s.history[i]
		if c := operation.Input.(call); c.does == "exchange" {
			c.forgotten = time.Unix(0, operation.Return).Sub(s.began) > codeLife ||
				trouble.memoryLostBetween(s.began.UnixNano(), operation.Return)
			operation.Input = c
		}
		if is := operation.Output.(outcome).is; is == unknown || is == unavailable {
			operation.Return = math.MaxInt64
		}
	}
	switch porcupine.CheckOperationsTimeout(grantModel(), s.history, checkWithin) {
	case porcupine.Illegal:
		t.Errorf("an illegal history of a grant; faults: %v", trouble.between(s.began))
		for _, operation := range s.history {
			t.Logf(
				"%6d to %6d ms: %+v → %+v",
				(operation.Call-s.began.UnixNano())/1e6,
				(operation.Return-s.began.UnixNano())/1e6,
				operation.Input,
				operation.Output,
			)
		}
	case porcupine.Unknown:
		t.Error("the checker did not finish")
	}
}
