package redis

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// age makes the last decision older.
func (r *grantsTest) age(by time.Duration) {
	r.Helper()
	if err := r.rdb.HIncrBy(r.Context(), grantKey(r.id), "at", -by.Milliseconds()).Err(); err != nil {
		r.Fatal(err)
	}
}

func (r *grantsTest) undo(nonce string) {
	r.Helper()
	if _, err := r.Undo(r.Context(), r.id, nonce, grant.Undo{}); err != nil {
		r.Fatal(err)
	}
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
		"another resource": func() (grant.ScriptResult, error) {
			defer func(resource string) { r.terms.Resource = resource }(r.terms.Resource)
			r.terms.Resource += "/"
			return r.rotate("x", 1, 11, 12)
		},
		"repaired": func() (grant.ScriptResult, error) {
			known := grant.Grant{
				ID:          r.id,
				Generation:  3,
				RefreshHash: hash(12),
				ClientID:    r.terms.ClientID,
				Resource:    r.terms.Resource,
				Ends:        r.ends,
			}
			if err := r.Repair(t.Context(), known); err != nil {
				t.Fatal(err)
			}
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
	nonces := []string{"a", "b", "c", "d", "e"}
	for i, nonce := range nonces {
		want := grant.Again
		if i == 0 {
			want = grant.OK
		}
		r.want(want)(r.rotate(nonce, 1, 11, 12))
	}
	r.want(grant.Again)(r.rotate("a", 1, 11, 12))
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

// Repeated requests leave the grant in its compact encoding.
func TestRotate_RepeatedRequestsUseLittleMemory(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	nonce := func() string { return uuid.NewString()[:16] }
	for generation := byte(1); generation < 5; generation++ {
		r.want(grant.OK)(r.rotate(nonce(), uint32(generation), 10+generation, 11+generation))
		for range 2 {
			r.want(grant.Again)(r.rotate(nonce(), uint32(generation), 10+generation, 11+generation))
		}
	}
	undone := nonce()
	r.want(grant.OK)(r.rotate(undone, 5, 15, 16))
	r.undo(undone)
	r.want(grant.OK)(r.rotate(nonce(), 5, 15, 16))
	r.want(grant.Again)(r.rotate(nonce(), 5, 15, 16))
	r.want(grant.Again)(r.rotate(nonce(), 5, 15, 16))
	if used, err := r.rdb.MemoryUsage(t.Context(), grantKey(r.id)).Result(); err != nil || used > 410 {
		t.Errorf("grant uses %d bytes, %v", used, err)
	} else {
		t.Logf("%d bytes", used)
	}
}
