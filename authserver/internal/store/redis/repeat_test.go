package redis

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// age makes the last decision older.
func (r *grantsTest) age(by time.Duration) {
	r.Helper()
	must(r, r.rdb.HIncrBy(r.Context(), grantKey(r.id), "at", -by.Milliseconds()).Err())
}

func (r *grantsTest) undo(nonce string) {
	r.Helper()
	must(r, errOf(r.Undo(r.Context(), r.id, nonce, grant.Undo{})))
}

// superseded asks about a step that the tries have taken in Postgres.
func (r *grantsTest) superseded(
	nonce string, generation uint32, next byte, takenBy ...string,
) (grant.ScriptResult, error) {
	var repeated []byte
	if next != 0 {
		repeated = hash(next)
	}
	step := grant.Step{GrantID: r.id, Nonce: nonce, Hash: repeated, GivenUp: r.givenUp}
	return r.Superseded(r.Context(), step, grant.Grant{ID: r.id, Generation: generation, TakenBy: takenBy})
}

func TestG11_SameHashWithinAMinuteIsRepeated(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	r.want(grant.Again)(r.exchange("e2", 1, r.terms))
	r.want(grant.Again)(r.exchange("e2", 1, r.terms)) // G8
	r.age(59 * time.Second)
	r.want(grant.Again)(r.exchange("e3", 1, r.terms))
	r.want(grant.OK)(r.rotate("a", 1, 11, 12))
	r.want(grant.Again)(r.rotate("b", 1, 11, 12))
	r.want(grant.Again)(r.rotate("b", 1, 11, 12)) // G8
	r.want(grant.OK)(r.rotate("a", 1, 11, 12))    // G8
	r.want(grant.Again)(r.superseded("c", 2, 12, "a"))
	r.want(grant.Again)(r.superseded("", 2, 12, "a"))
	r.want(grant.Superseded)(r.superseded("d", 2, 13, "a"))
	r.want(grant.Superseded)(r.superseded("d", 3, 12, "a"))
	r.want(grant.Superseded)(r.superseded("", 2, 0, "a"))
	r.age(time.Minute)
	r.want(grant.Superseded)(r.superseded("", 2, 12, "a"))
	r.want(grant.Replay)(r.rotate("d", 1, 11, 12))
	r.want(grant.Superseded)(r.superseded("d", 2, 12, "a"))
	r.activate()
	r.age(time.Minute)
	r.want(grant.Reused)(r.exchange("e4", 1, r.terms))
}

func TestG11_OtherRequestIsNotRepeated(t *testing.T) {
	r := newGrantsTest(t)
	for name, ask := range map[string]func() (grant.ScriptResult, error){
		"another token": func() (grant.ScriptResult, error) { return r.rotate("x", 1, 11, 13) },
		"another resource": r.with(func(c *grant.CodeTerms) { c.Resource += "/" }, func() (grant.ScriptResult, error) {
			return r.rotate("x", 1, 11, 12)
		}),
		"repaired": func() (grant.ScriptResult, error) {
			must(t, r.Repair(t.Context(), r.stored(3, 12)))
			return r.rotate("x", 2, 12, 12)
		},
	} {
		r.activate()
		r.want(grant.OK)(r.rotate("a", 1, 11, 12))
		if got, err := ask(); err != nil || got != grant.Replay {
			t.Errorf("%s: %s %v", name, got, err)
		}
	}
}

// A decision is undone when every try that got its result was undone.
func TestG10_RepeatedDecisionIsUndoneByItsLastHolder(t *testing.T) {
	r := newGrantsTest(t)
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		r.activate()
		r.want(grant.OK)(r.rotate("a", 1, 11, 12))
		r.want(grant.Again)(r.rotate("b", 1, 11, 12))
		r.undo(order[0])
		r.want(grant.Superseded)(r.superseded("", 2, 0, "a", "b"))
		r.want(grant.Again)(r.superseded("", 2, 12, "a", "b"))
		r.undo(order[1])
		r.want(grant.Undone)(r.superseded("", 2, 0, "a", "b"))
		r.want(grant.Undone)(r.superseded("", 2, 12, "a"))
		r.want(grant.Superseded)(r.superseded("", 2, 0, "a", "c"))
		r.want(grant.OK)(r.rotate("c", 1, 11, 12)) // the same hash becomes current again
		r.want(grant.Again)(r.rotate("d", 1, 11, 12))
		r.givenUp = []string{"c", "d"}
		r.want(grant.OK)(r.rotate("e", 1, 11, 13))
		r.givenUp = nil
		r.want(grant.OK)(r.rotate("f", 2, 13, 14))
	}
	r.activate()
	r.want(grant.Again)(r.exchange("second", 1, r.terms))
	r.undo("first")
	r.want(grant.Again)(r.exchange("third", 1, r.terms))
	r.undo("second")
	r.undo("third")
	r.want(grant.OK)(r.exchangeTo("fourth", 1, r.terms, 13))
}

// A decision with more holders than Redis records is never undone.
func TestG10_DecisionWithManyHoldersIsNotUndone(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	nonces := []string{"b", "c", "d", "e", "a"}
	r.want(grant.OK)(r.rotate("a", 1, 11, 12))
	for _, nonce := range nonces {
		r.want(grant.Again)(r.rotate(nonce, 1, 11, 12))
	}
	for _, nonce := range nonces {
		r.undo(nonce)
	}
	r.want(grant.OK)(r.rotate("f", 2, 12, 13))
}

// A process with other keys finds its own hash second.
func TestG11_RepeatedHashHasPlace(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	r.want(grant.OK)(r.rotate("a", 1, 11, 12))
	step := grant.Step{GrantID: r.id, Nonce: "b"}
	r.want("again:2")(r.decideToken(t.Context(), step, 1, hash(11), hash(20), hash(12)))
	r.undo("a")
	r.want("again:2")(r.decideToken(t.Context(), step, 1, hash(11), hash(20), hash(12))) // G8
}

// rotateDirectly is rotate with a direct try.
func (r *grantsTest) rotateDirectly(nonce string, generation uint32, presented byte) (grant.ScriptResult, error) {
	step := grant.Step{GrantID: r.id, Nonce: nonce, Began: time.Now()}
	result, err := r.decideToken(r.Context(), step, generation, hash(presented), hash(presented+1))
	if former, replaced := strings.CutPrefix(string(result), "ok:"); replaced {
		r.former, result = former, grant.OK
	}
	return result, err
}

// exchangeDirectly is exchange with a direct try.
func (r *grantsTest) exchangeDirectly(nonce string, code byte) (grant.ScriptResult, error) {
	step := grant.Step{GrantID: r.id, Nonce: nonce, Began: time.Now()}
	return r.decideCode(r.Context(), step, hash(code), r.terms, hash(11))
}

// unchanged checks that a call changes nothing and returns a result.
func (r *grantsTest) unchanged(what string, want grant.ScriptResult, call func() (grant.ScriptResult, error)) {
	r.Helper()
	read := func() map[string]string {
		fields := r.rdb.HGetAll(r.Context(), grantKey(r.id)).Val()
		delete(fields, "ph") // the former token: the current one was presented, so its step is never undone
		return fields
	}
	before := read()
	got, err := call()
	after := read()
	if err != nil || got != want || !maps.Equal(before, after) {
		r.Errorf("%s: %q %v, want %q; %v, before %v", what, got, err, want, after, before)
	}
}

// with changes the terms during a call.
func (r *grantsTest) with(
	change func(*grant.CodeTerms), call func() (grant.ScriptResult, error),
) func() (grant.ScriptResult, error) {
	return func() (grant.ScriptResult, error) {
		terms := r.terms
		defer func() { r.terms = terms }()
		change(&r.terms)
		return call()
	}
}

func TestDirectTry_ReplacesOnlyCurrentToken(t *testing.T) {
	r := newGrantsTest(t)
	r.issue(1)
	current := func() (grant.ScriptResult, error) { return r.rotateDirectly("a", 2, 12) }
	r.unchanged("pending", grant.ReadFirst, current)
	r.want(grant.OK)(r.exchange("first", 1, r.terms))
	first := func() (grant.ScriptResult, error) { return r.rotateDirectly("b", 1, 11) }
	r.unchanged("the exchange can be repeated", grant.ReadFirst, first)
	r.age(time.Minute)
	r.want(grant.OK)(first())
	r.unchanged("own retry", grant.OK, func() (grant.ScriptResult, error) { return r.rotateDirectly("b", 1, 11) })
	for what, call := range map[string]func() (grant.ScriptResult, error){
		"superseded":       func() (grant.ScriptResult, error) { return r.rotateDirectly("c", 1, 11) },
		"newer":            func() (grant.ScriptResult, error) { return r.rotateDirectly("c", 3, 12) },
		"another token":    func() (grant.ScriptResult, error) { return r.rotateDirectly("c", 2, 13) },
		"another client":   r.with(func(c *grant.CodeTerms) { c.ClientID = uuid.New() }, current),
		"another resource": r.with(func(c *grant.CodeTerms) { c.Resource += "/" }, current),
	} {
		r.unchanged(what, grant.ReadFirst, call)
	}
	r.want(grant.OK)(current())
	r.revoke()
	r.unchanged("revoked", grant.ReadFirst, func() (grant.ScriptResult, error) { return r.rotateDirectly("d", 3, 13) })
	r.activate()
	r.rdb.HSet(t.Context(), grantKey(r.id), "en", time.Now().Add(-time.Second).UnixMilli())
	r.unchanged("ended", grant.ReadFirst, func() (grant.ScriptResult, error) { return r.rotateDirectly("d", 1, 11) })
	r.id = uuid.New()
	r.want(grant.Missing)(r.rotateDirectly("d", 1, 11))
}

func TestDirectTry_RedeemsOnlyValidUnusedCode(t *testing.T) {
	r := newGrantsTest(t)
	r.issue(1)
	valid := func() (grant.ScriptResult, error) { return r.exchangeDirectly("a", 1) }
	for what, call := range map[string]func() (grant.ScriptResult, error){
		"another code":      func() (grant.ScriptResult, error) { return r.exchangeDirectly("b", 2) },
		"another client":    r.with(func(c *grant.CodeTerms) { c.ClientID = uuid.New() }, valid),
		"another resource":  r.with(func(c *grant.CodeTerms) { c.Resource += "/" }, valid),
		"another address":   r.with(func(c *grant.CodeTerms) { c.RedirectURI += "/" }, valid),
		"another challenge": r.with(func(c *grant.CodeTerms) { c.Challenge += "x" }, valid),
	} {
		r.unchanged(what, grant.ReadFirst, call)
	}
	r.want(grant.OK)(valid())
	r.unchanged("own retry", grant.OK, valid)
	r.unchanged("used", grant.ReadFirst, func() (grant.ScriptResult, error) { return r.exchangeDirectly("b", 1) })
	for field, what := range map[string]string{"cx": "expired", "en": "ended"} {
		r.issue(1)
		r.rdb.HSet(t.Context(), grantKey(r.id), field, time.Now().Add(-time.Second).UnixMilli())
		r.unchanged(what, grant.ReadFirst, valid)
	}
}

// A call that arrives after its try was undone decides nothing. Its response would go nowhere.
func TestG10_UndoneTryDecidesNothing(t *testing.T) {
	r := newGrantsTest(t)
	r.issue(1)
	r.want(grant.OK)(r.exchange("a", 1, r.terms))
	r.undo("a")
	r.unchanged("exchange", grant.Late, func() (grant.ScriptResult, error) { return r.exchange("a", 1, r.terms) })
	r.want(grant.OK)(r.exchange("b", 1, r.terms))
	r.want(grant.OK)(r.rotate("c", 1, 11, 12))
	r.undo("c")
	r.unchanged("refresh", grant.Late, func() (grant.ScriptResult, error) { return r.rotate("c", 1, 11, 12) })
	r.want(grant.OK)(r.rotate("d", 1, 11, 12))
}

// Postgres has refused these steps, so superseded never asks about them. They must not push out others.
func TestUndo_RefusedStepIsNotRemembered(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	r.want(grant.OK)(r.rotate("given-up", 1, 11, 12))
	r.undo("given-up")
	for _, nonce := range []string{"a", "b", "c", "d"} {
		r.want(grant.OK)(r.rotateDirectly(nonce, 1, 11))
		r.undoRefused(nonce)
	}
	r.want(grant.Undone)(r.superseded("", 2, 0, "given-up"))
}

// A try that was undone, or whose result another request has used, is overtaken. A try of a revoked grant is not, nor
// is one of so many that the store no longer lists them.
func TestUndo_ReportsLaterDecision(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	overtaken := func(want bool, nonce string) {
		t.Helper()
		if got, err := r.Undo(t.Context(), r.id, nonce, grant.Undo{Refused: true}); err != nil || got != want {
			t.Errorf("%s: overtaken %t, %v, want %t", nonce, got, err, want)
		}
	}
	r.want(grant.OK)(r.rotate("a", 1, 11, 12))
	r.want(grant.Again)(r.rotate("b", 1, 11, 12))
	overtaken(false, "a")
	overtaken(true, "a")
	r.want(grant.Again)(r.rotate("c", 1, 11, 12))
	r.want(grant.Again)(r.rotate("d", 1, 11, 12))
	overtaken(false, "d")
	for _, nonce := range []string{"g", "h", "i"} {
		r.want(grant.Again)(r.rotate(nonce, 1, 11, 12))
	}
	overtaken(false, "i")
	r.want(grant.OK)(r.rotate("e", 2, 12, 13))
	overtaken(true, "d")
	r.want(grant.Replay)(r.rotate("f", 1, 11, 14))
	overtaken(false, "e")
}

func (r *grantsTest) undoRefused(nonce string) {
	r.Helper()
	refused := grant.Undo{Refused: true, Former: r.former}
	if overtaken, err := r.Undo(r.Context(), r.id, nonce, refused); err != nil || overtaken {
		r.Fatalf("overtaken %t, %v", overtaken, err)
	}
	r.former = ""
}

// A refused request leaves the grant as it was. The request before it can still be repeated.
func TestG11_RefusedStepKeepsRepetition(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	r.want(grant.OK)(r.rotate("a", 1, 11, 12))
	r.want(grant.Again)(r.rotate("b", 1, 11, 12))
	r.unchanged("refused", grant.OK, func() (grant.ScriptResult, error) {
		result, err := r.rotateDirectly("c", 2, 12)
		r.undoRefused("c")
		return result, err
	})
	r.want(grant.Again)(r.rotate("b", 1, 11, 12))
	r.want(grant.OK)(r.rotateDirectly("d", 2, 12))
	r.want(grant.Replay)(r.rotate("b", 1, 11, 12))
}
