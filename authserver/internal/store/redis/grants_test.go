package redis

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// The scripts are tested without Postgres, which would hide their faults.

type grantsTest struct {
	*testing.T
	*Grants
	rdb     goredis.UniversalClient
	id      uuid.UUID
	terms   grant.CodeTerms
	ends    time.Time
	givenUp []string
	former  string // what the last direct rotation replaced
}

var must = testkit.Must

// newClient starts a Redis for this test, and returns a client whose calls wait so long for it.
func newClient(t *testing.T, wait time.Duration) (goredis.UniversalClient, *localstore.Redis) {
	t.Helper()
	server := testkit.NewRedis(t)
	rdb, err := Connect(credential.Fixed(credential.Secret(server.URL)), wait)
	must(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb, server
}

func newGrantsTest(t *testing.T) *grantsTest {
	t.Helper()
	rdb, _ := newClient(t, testkit.StoreWait)
	return &grantsTest{T: t, Grants: NewGrants(rdb), rdb: rdb, ends: time.Now().Add(time.Hour)}
}

func hash(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// revokedFor is the result for a grant that was already revoked for a reason.
func revokedFor(reason grant.Reason) grant.ScriptResult {
	return "revoked:" + grant.ScriptResult(reason)
}

func (r *grantsTest) issue(code byte) {
	r.Helper()
	r.id = uuid.New()
	r.terms = grant.CodeTerms{
		ClientID:    uuid.New(),
		RedirectURI: "https://a.example/cb",
		Resource:    "https://api.example/v1",
		Challenge:   "c",
	}
	r.want(grant.OK)(r.Issue(r.Context(), r.id, 1, hash(code), r.terms, r.ends))
}

// activate issues a grant and exchanges its code.
func (r *grantsTest) activate() {
	r.Helper()
	r.issue(1)
	r.want(grant.OK)(r.exchange("first", 1, r.terms))
}

// revoke revokes the grant as its user does.
func (r *grantsTest) revoke() {
	r.Helper()
	must(r, r.Revoke(r.Context(), r.id, grant.ByUser, r.ends))
}

// stored returns the grant as Postgres has it after a step that Redis lacks.
func (r *grantsTest) stored(generation uint32, token byte) grant.Grant {
	return grant.Grant{
		ID:          r.id,
		Generation:  generation,
		RefreshHash: hash(token),
		ClientID:    r.terms.ClientID,
		Resource:    r.terms.Resource,
		Ends:        r.ends,
	}
}

func (r *grantsTest) want(want grant.ScriptResult) func(grant.ScriptResult, error) {
	r.Helper()
	return func(got grant.ScriptResult, err error) {
		r.Helper()
		if err != nil || got != want {
			r.Errorf("got %q %v, want %q", got, err, want)
		}
	}
}

// decideCode and decideToken run the script of a code or of a refresh token.
func (r *grantsTest) decideCode(
	ctx context.Context, step grant.Step, code []byte, terms grant.CodeTerms, next ...[]byte,
) (grant.ScriptResult, error) {
	request := grant.Request{Token: grant.Token{GrantID: step.GrantID, Hash: code}, Terms: terms}
	return r.Decide(ctx, step, request, next)
}

func (r *grantsTest) decideToken(
	ctx context.Context, step grant.Step, generation uint32, hash []byte, next ...[]byte,
) (grant.ScriptResult, error) {
	token := grant.Token{GrantID: step.GrantID, Generation: generation, Hash: hash}
	terms := grant.CodeTerms{ClientID: r.terms.ClientID, Resource: r.terms.Resource}
	return r.Decide(ctx, step, grant.Request{Token: token, Terms: terms}, next)
}

func (r *grantsTest) exchange(nonce string, code byte, terms grant.CodeTerms) (grant.ScriptResult, error) {
	return r.exchangeTo(nonce, code, terms, 11)
}

// exchangeTo is exchange with another refresh token.
func (r *grantsTest) exchangeTo(nonce string, code byte, terms grant.CodeTerms, next byte) (grant.ScriptResult, error) {
	step := grant.Step{GrantID: r.id, Nonce: nonce, GivenUp: r.givenUp}
	return r.decideCode(r.Context(), step, hash(code), terms, hash(next))
}

func (r *grantsTest) rotate(nonce string, generation uint32, presented, next byte) (grant.ScriptResult, error) {
	step := grant.Step{GrantID: r.id, Nonce: nonce, GivenUp: r.givenUp}
	return r.decideToken(r.Context(), step, generation, hash(presented), hash(next))
}

func TestG1_ExchangeDecidesAlone(t *testing.T) {
	r := newGrantsTest(t)
	r.want(grant.Missing)(r.exchange("n", 1, grant.CodeTerms{}))
	r.issue(1)
	other := r.terms
	other.ClientID = uuid.New()
	r.want(grant.WrongClient)(r.exchange("a", 1, other))
	r.want(grant.Replaced)(r.exchange("b", 2, r.terms))
	r.want(grant.OK)(r.exchange("c", 1, r.terms))
	r.want(grant.OK)(r.exchange("c", 1, r.terms)) // G8: our own retry
	r.want(grant.WrongClient)(r.exchange("d", 1, other))
	wrong := r.terms
	wrong.Challenge = ""
	r.want(grant.WrongVerifier)(r.exchange("e", 1, wrong))
	r.want(grant.OK)(r.rotate("f", 1, 11, 12))           // none of these revoked it
	r.want(grant.CodeSpent)(r.exchange("g", 1, r.terms)) // Postgres decides the rest
	r.want(grant.OK)(r.rotate("h", 2, 12, 13))
	r.activate()
	r.want(grant.Reused)(r.exchangeTo("g", 1, r.terms, 12))
	r.want(revokedFor(grant.CodeReused))(r.rotate("h", 1, 11, 12))
	r.want(revokedFor(grant.CodeReused))(r.exchange("i", 1, r.terms))
	r.want(grant.AlreadyUsed)(r.Issue(t.Context(), r.id, 2, hash(3), r.terms, r.ends))
}

func TestG2_G3_RotateDecidesAlone(t *testing.T) {
	r := newGrantsTest(t)
	r.want(grant.Missing)(r.rotate("n", 1, 11, 12))
	r.activate()
	r.want(grant.Ahead)(r.rotate("a", 2, 12, 13))
	r.want(grant.Replaced)(r.rotate("b", 1, 99, 12))
	client := r.terms.ClientID
	r.terms.ClientID = uuid.New()
	r.want(grant.WrongClient)(r.rotate("c", 1, 11, 12))
	r.terms.ClientID = client
	resource := r.terms.Resource
	r.terms.Resource += "/"
	r.want(grant.WrongResource)(r.rotate("d", 1, 11, 12))
	r.terms.Resource = resource
	r.want(grant.OK)(r.rotate("e", 1, 11, 12))
	r.want(grant.OK)(r.rotate("e", 1, 11, 12)) // G8
	r.want(grant.OK)(r.rotate("f", 2, 12, 13))
	r.terms.Resource += "/" // a wrong resource does not hide a replay
	r.want(grant.Replay)(r.rotate("g", 1, 11, 12))
	r.terms.Resource = resource
	r.want(revokedFor(grant.Replayed))(r.rotate("h", 3, 13, 14))
}

func TestG4_GrantEndUsesRedisClock(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	elapsed := time.Until(r.ends).Milliseconds() + 1
	must(t, r.rdb.HIncrBy(t.Context(), grantKey(r.id), "en", -elapsed).Err())
	r.ends = time.Now()
	r.want(grant.Ended)(r.rotate("a", 1, 11, 12))
	r.want(grant.Ended)(r.Issue(t.Context(), uuid.New(), 1, hash(1), r.terms, r.ends))
}

func TestG7_RevocationSurvivesOtherCalls(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	for range 2 {
		r.revoke()
		r.want(revokedFor(grant.ByUser))(r.rotate("a", 1, 11, 12))
		must(t, r.Repair(t.Context(), r.stored(9, 19)))
		r.undo("first")
		r.want(revokedFor(grant.ByUser))(r.rotate("b", 9, 19, 20))
		must(t, r.rdb.Del(t.Context(), grantKey(r.id)).Err()) // the same with a missing key
	}
}

func TestUndo_RevertsOnlyItsOwnDecision(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	r.want(grant.OK)(r.rotate("a", 1, 11, 12))
	r.undo("another")
	r.want(grant.OK)(r.rotate("b", 2, 12, 13))
	r.undo("a") // late: another decision was made since
	r.want(grant.OK)(r.rotate("c", 3, 13, 14))
	r.undo("c")
	r.want(grant.Replaced)(r.rotate("d", 3, 14, 15)) // no client received the undone token
	r.want(grant.OK)(r.rotate("e", 3, 13, 16))
	r.issue(1)
	r.want(grant.OK)(r.exchange("f", 1, r.terms))
	r.undo("f")
	r.want(grant.OK)(r.exchange("g", 1, r.terms))
}

// A call that Redis receives after its deadline changes nothing, whatever it would have decided.
func TestG10_LateCallChangesNothing(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	known := r.scripts.server(late, "")
	set := func(by time.Duration) {
		known.clock.mu.Lock()
		defer known.clock.mu.Unlock()
		known.clock.sample.server += by.Milliseconds()
	}
	back := func(call func(context.Context) (grant.ScriptResult, error)) (grant.ScriptResult, error) {
		set(-2 * time.Hour) // the deadline of an hour from now is an hour ago for Redis
		return call(late)
	}
	rotate := func(presented, next byte) func(context.Context) (grant.ScriptResult, error) {
		return func(ctx context.Context) (grant.ScriptResult, error) {
			return r.decideToken(ctx, grant.Step{GrantID: r.id, Nonce: "late"}, 1, hash(presented), hash(next))
		}
	}
	r.want(grant.Late)(back(rotate(11, 12)))
	r.want(grant.OK)(rotate(11, 12)(late)) // the response carried the server's time
	r.want(grant.Late)(back(rotate(11, 13)))
	r.want(grant.OK)(r.rotate("next", 2, 12, 14)) // a late replay revoked nothing
	r.issue(1)
	exchange := func(ctx context.Context) (grant.ScriptResult, error) {
		return r.decideCode(ctx, grant.Step{GrantID: r.id, Nonce: "n"}, hash(1), r.terms, hash(11))
	}
	r.want(grant.Late)(back(exchange))
	r.want(grant.OK)(exchange(late))
	issue := func(ctx context.Context) (grant.ScriptResult, error) {
		return r.Issue(ctx, uuid.New(), 1, hash(1), r.terms, r.ends)
	}
	r.want(grant.Late)(back(issue))
	set(-2 * time.Hour)
	if err := r.Repair(late, r.stored(9, 19)); !errors.Is(err, grant.ErrNotCommitted) {
		t.Errorf("late repair: %v", err)
	}
	r.want(grant.OK)(r.rotate("first", 1, 11, 12))
}

// The next script undoes the last decision if its nonce was given up: no client received the result of that
// decision.
func TestG10_GivenUpDecisionIsUndone(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	r.want(grant.OK)(r.rotate("given-up", 1, 11, 12))
	r.givenUp = []string{"another", "given-up"}
	r.want(grant.OK)(r.rotate("retry", 1, 11, 13))
	r.want(grant.Replaced)(r.rotate("guess", 2, 12, 14)) // no client received its successor
	r.want(grant.OK)(r.rotate("next", 2, 13, 14))
	r.want(grant.Replay)(r.rotate("replay", 1, 11, 15)) // a superseded token is still recognised
	r.givenUp = nil
	r.issue(1)
	r.want(grant.OK)(r.exchange("given-up", 1, r.terms))
	r.givenUp = []string{"given-up"}
	r.want(grant.OK)(r.exchange("retry", 1, r.terms))
	r.want(grant.Reused)(r.exchangeTo("reuse", 1, r.terms, 12))
}

func TestIssue_LastApprovalWinsInAnyOrder(t *testing.T) {
	r := newGrantsTest(t)
	r.issue(1)
	r.want(grant.OK)(r.Issue(t.Context(), r.id, 3, hash(3), r.terms, r.ends))
	r.want(grant.OK)(r.Issue(t.Context(), r.id, 2, hash(2), r.terms, r.ends))
	r.want(grant.Replaced)(r.exchange("a", 2, r.terms))
	wrong := r.terms
	wrong.RedirectURI += "x"
	for range 4 {
		r.want(grant.WrongRedirectURI)(r.exchange("b", 3, wrong))
	}
	r.want(grant.OK)(r.Issue(t.Context(), r.id, 4, hash(4), r.terms, r.ends))
	r.want(grant.WrongRedirectURI)(r.exchange("c", 4, wrong)) // the tries counted for another code
	r.want(grant.OK)(r.exchange("d", 4, r.terms))
}

func TestRepair_OnlyMovesForward(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	known := r.stored(5, 15)
	must(t, r.Repair(t.Context(), known))
	r.want(grant.OK)(r.rotate("a", 5, 15, 16))
	must(t, r.Repair(t.Context(), known))
	r.want(grant.OK)(r.rotate("b", 6, 16, 17))
}

func TestKeys_HaveTimeToLive(t *testing.T) {
	r := newGrantsTest(t)
	live := func(atLeast, atMost time.Duration) {
		t.Helper()
		ttl, err := r.rdb.PTTL(t.Context(), grantKey(r.id)).Result()
		if err != nil || ttl < atLeast || ttl > atMost {
			t.Errorf("time to live %v %v, want %v to %v", ttl, err, atLeast, atMost)
		}
	}
	r.issue(1)
	live(10*time.Minute, 11*time.Minute)
	r.want(grant.OK)(r.exchange("a", 1, r.terms))
	live(24*time.Hour, 25*time.Hour)
	r.undo("a")
	live(10*time.Minute, 11*time.Minute)
	r.id = uuid.New()
	r.revoke()
	for _, key := range r.rdb.Keys(t.Context(), "*").Val() {
		if r.rdb.PTTL(t.Context(), key).Val() <= 0 {
			t.Errorf("%s has no time to live", key)
		}
	}
}

// A million live grants must fit into 450 MB, including the 40 bytes per key that Redis needs for the time to live.
// Repeated requests leave the grant in its compact encoding.
func TestRotate_RefreshedGrantUsesLittleMemory(t *testing.T) {
	r := newGrantsTest(t)
	for _, repeated := range []int{0, 2} {
		nonce := func() string { return uuid.NewString()[:16] } // as long as those of the grant service
		r.activate()
		for generation := byte(1); generation < 5; generation++ {
			r.want(grant.OK)(r.rotate(nonce(), uint32(generation), 10+generation, 11+generation))
			for range repeated {
				r.want(grant.Again)(r.rotate(nonce(), uint32(generation), 10+generation, 11+generation))
			}
		}
		undone := nonce()
		r.want(grant.OK)(r.rotate(undone, 5, 15, 16))
		r.undo(undone)
		r.want(grant.OK)(r.rotate(nonce(), 5, 15, 16))
		for range repeated {
			r.want(grant.Again)(r.rotate(nonce(), 5, 15, 16))
		}
		if used, err := r.rdb.MemoryUsage(t.Context(), grantKey(r.id)).Result(); err != nil || used > 410 {
			t.Errorf("each request repeated %d times: the grant uses %d bytes, %v", repeated, used, err)
		}
	}
}

func TestG2_OneOfAHundredRacersWins(t *testing.T) {
	r := newGrantsTest(t)
	for range 20 {
		r.activate()
		var wg sync.WaitGroup
		var mu sync.Mutex
		results := map[grant.ScriptResult]int{}
		for i := range 100 {
			wg.Go(func() {
				result, err := r.rotate(uuid.NewString(), 1, 11, byte(100+i))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				results[result]++
			})
		}
		wg.Wait()
		if results[grant.OK] != 1 || results[grant.Replay] != 1 || results[revokedFor(grant.Replayed)] != 98 {
			t.Errorf("%v", results)
		}
	}
}

// RevokeAll revokes grants like Revoke: those that Redis does not know too, before and after it knows the script.
func TestRevokeAll_RevokesLikeRevoke(t *testing.T) {
	r := newGrantsTest(t)
	field := func(id uuid.UUID, name string) string {
		return r.rdb.HGet(t.Context(), grantKey(id), name).Val()
	}
	for _, script := range []string{"unknown to Redis", "known to Redis"} {
		r.activate()
		ended := []grant.Grant{
			{ID: r.id, Reason: grant.ByAdmin, Ends: r.ends},
			{ID: uuid.New(), Reason: grant.ByUser, Ends: r.ends.Add(time.Hour)},
		}
		if script == "unknown to Redis" {
			must(t, r.rdb.ScriptFlush(t.Context()).Err())
		}
		must(t, r.RevokeAll(t.Context(), ended))
		for _, g := range ended {
			if state, reason := field(g.ID, "st"), field(g.ID, "rr"); state != "revoked" || reason != string(g.Reason) {
				t.Errorf("%s: %s is %s (%s)", script, g.ID, state, reason)
			}
			life := r.rdb.PTTL(t.Context(), grantKey(g.ID)).Val()
			if want := time.Until(g.Ends) + 24*time.Hour; (life - want).Abs() > time.Minute {
				t.Errorf("%s: %s is stored for %s, want %s", script, g.ID, life, want)
			}
		}
	}
}

// If Redis knows the script, no grant is revoked a second time by a separate call.
func TestRevokeAll_CallsScriptOnceForEachGrant(t *testing.T) {
	r := newGrantsTest(t)
	r.revoke() // loads the script
	must(t, r.rdb.ConfigResetStat(t.Context()).Err())
	ended := make([]grant.Grant, 20)
	for i := range ended {
		ended[i] = grant.Grant{ID: uuid.New(), Reason: grant.ByUser, Ends: r.ends}
	}
	must(t, r.RevokeAll(t.Context(), ended))
	if stats := r.rdb.Info(t.Context(), "commandstats").Val(); !strings.Contains(stats, "cmdstat_evalsha:calls=20,") {
		t.Error(stats)
	}
}

func TestScripts_AreReloadedAfterFlush(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	r.want(grant.OK)(r.rotate("a", 1, 11, 12)) // the script is loaded
	if err := r.rdb.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.want(grant.OK)(r.rotate("b", 2, 12, 13))
}
