package session

import (
	"errors"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// busyQueue returns a queue in which no caller gets a turn until release.
func busyQueue(t *testing.T) (q *turnQueue, release func()) {
	t.Helper()
	q = newTurnQueue(fourCores)
	var running []func()
	for range atOnce {
		running = append(running, enter(t, q, Caller{}))
	}
	return q, func() {
		for _, leave := range running {
			leave()
		}
	}
}

// attemptsOf returns the counts of a caller's address and account.
func attemptsOf(q *turnQueue, c Caller) [2]int {
	counters := q.countersOf(c)
	return [2]int{counters[0].attempts(time.Now()), counters[measures-1].attempts(time.Now())}
}

// The page that waits sends the form again and again. Its user keeps the priority of a first attempt. A flood does not:
// it tries other accounts, or sends the next password before the one before is answered.
func TestTurnQueue_RefusedAttemptIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, release := busyQueue(t)
		ana := Caller{Email: "ana@example.org", Address: netip.MustParseAddr("198.51.100.7")}
		other := Caller{Email: "ben@example.org", Address: ana.Address}
		refused := func(c Caller) {
			t.Helper()
			if _, err := q.enter(t.Context(), c); !errors.Is(err, ErrBusy) {
				t.Fatalf("%s: %v", c.Email, err)
			}
		}
		for range 4 {
			refused(ana)
		}
		equal(t, "attempts of the address and of the account, after four refusals", attemptsOf(q, ana), [2]int{1, 1})
		refused(other)
		equal(t, "attempts of the address and of the account, another account", attemptsOf(q, other), [2]int{2, 1})
		for range 3 {
			go func() { _, _ = q.enter(t.Context(), other) }()
		}
		synctest.Wait()
		equal(t, "attempts of the address and of the account, three at once", attemptsOf(q, other), [2]int{4, 3})
		time.Sleep(longestWait)
		time.Sleep(4 * forgetEvery)
		refused(ana) // the count of the refused attempt is forgotten
		equal(t, "attempts of the address and of the account, later", attemptsOf(q, ana), [2]int{1, 1})
		release()
		leave := enter(t, q, ana)
		leave()
		equal(t, "attempts of the address and of the account, after a right password", attemptsOf(q, ana), [2]int{0, 0})
	})
}

// A refused check of a known browser does not count: the page that waits keeps its priority.
func TestTurnQueue_RefusedCheckLeavesKnownBrowsersLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, release := busyQueue(t)
		defer release()
		ana := Caller{Email: "ana@example.org", Known: true}
		for i := range perKnownBrowser + 5 {
			if _, err := q.enter(t.Context(), ana); !errors.Is(err, ErrBusy) {
				t.Fatalf("check %d: %v", i, err)
			}
		}
		if q.newTurn(ana).counters != nil {
			t.Error("the refused checks have used up the lane")
		}
	})
}

// A flood of new addresses and accounts drops the counters of neither known browsers nor wide networks, and one of new
// addresses alone drops those of no account.
func TestTurnQueue_FloodOfNewKeysDropsNoOtherCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurnQueue(fourCores)
		own := Caller{Email: "mallory@example.org", Known: true}
		attacked := Caller{Email: "ana@example.org", Address: netip.MustParseAddr("198.51.100.7")}
		for range perKnownBrowser {
			q.newTurn(own)
			q.wrong(attacked)
		}
		fresh := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}) }
		for i := range maxLocalKeys {
			q.newTurn(Caller{Email: "one@example.org", Address: fresh(i)})
		}
		if got := attemptsOf(q, attacked); got[1] != perKnownBrowser {
			t.Errorf("%d attempts of an account after a flood from new addresses", got[1])
		}
		for i := range maxLocalKeys {
			q.newTurn(Caller{Email: strconv.Itoa(i) + "@example.org", Address: fresh(i)})
		}
		if q.newTurn(own).counters == nil {
			t.Error("a flood has emptied the lane of an account")
		}
		if wide := q.countersOf(attacked)[3]; wide.attempts(time.Now()) < perKnownBrowser {
			t.Errorf("%d attempts of a wide network", wide.attempts(time.Now()))
		}
	})
}

func TestLocalCounter_ExpiresAndIsBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	counter := newLocalCounter(func() time.Time { return now })
	for i := range 3 {
		if wait := counter.count("k", 3, time.Minute, true); wait != 0 {
			t.Fatalf("event %d waits %v", i, wait)
		}
		now = now.Add(time.Second)
	}
	equal(t, "the wait for a full counter", counter.count("k", 3, time.Minute, true), 57*time.Second)
	now = now.Add(57 * time.Second)
	wait := counter.count("k", 3, time.Minute, false)
	equal(t, "the wait after the first event is forgotten", wait, time.Duration(0))
	counter.count("k", 3, time.Minute, true)
	if events, _ := counter.seen.Peek("k"); len(events) != 3 {
		t.Errorf("%d events, want the last two and one more", len(events))
	}
	for i := range maxLocalKeys + 10 {
		now = now.Add(time.Microsecond)
		counter.count("flood "+strconv.Itoa(i), 3, time.Minute, true)
	}
	last := "flood " + strconv.Itoa(maxLocalKeys+9)
	if events, _ := counter.seen.Peek(last); len(events) != 1 || counter.seen.Len() != maxLocalKeys {
		t.Errorf("%d events of the latest key, %d keys", len(events), counter.seen.Len())
	}
	now = now.Add(time.Hour)
	if counter.count(last, 3, time.Minute, false); counter.seen.Contains(last) {
		t.Error("a key without events is still stored")
	}
}

// The counter of a limited address is not dropped while other addresses are counted.
func TestLocalCounter_FloodDoesNotFreeKeyInUse(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	counter := newLocalCounter(func() time.Time { return now })
	counter.count("k", 1, time.Hour, true)
	for i := range maxLocalKeys + 2000 {
		if counter.count("flood "+strconv.Itoa(i), 3, time.Hour, true); i%1000 != 0 {
			continue
		}
		if wait := counter.count("k", 1, time.Hour, false); wait != time.Hour {
			t.Fatalf("after %d other keys: wait %v", i, wait)
		}
	}
}
