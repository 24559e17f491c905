package session

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

const (
	hashTime  = 40 * time.Millisecond // on a core that is shared with others
	fourCores = 4
)

// flood is sendWrongPasswords of a flood of six seconds ago, which has filled the queue when it returns.
func flood(t *testing.T, q *turnQueue, from func(i int) Caller) (refused *sync.Map) {
	for i := range 300 {
		q.wrong(from(i))
	}
	refused = sendWrongPasswords(t, q, from)
	time.Sleep(3 * time.Second)
	return refused
}

// enter returns how a caller leaves the turn, which the caller must get.
func enter(t *testing.T, q *turnQueue, c Caller) (leave func()) {
	t.Helper()
	leave, err := q.enter(t.Context(), c)
	must(t, err)
	return leave
}

// sendWrongPasswords sends 120 wrong passwords a second, each from the caller that from returns, until the test ends.
func sendWrongPasswords(t *testing.T, q *turnQueue, from func(i int) Caller) (refused *sync.Map) {
	refused = &sync.Map{}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			all.Go(func() {
				c := from(i)
				leave, err := q.enter(ctx, c)
				if err != nil {
					refused.Store(i, err)
					return
				}
				time.Sleep(hashTime)
				q.wrong(c)
				time.Sleep(hashTime) // as Verify rests after a wrong password
				leave()
			})
			time.Sleep(time.Second / 120)
		}
	})
	return refused
}

// anywhere returns a random IPv4 address outside 198.51.0.0/16, the network of the users in these tests.
func anywhere(random *rand.Rand) netip.Addr {
	for {
		if a := within()(random); !netip.MustParsePrefix("198.51.0.0/16").Contains(a) {
			return a
		}
	}
}

// within returns random addresses of IPv4 that begin with these bytes.
func within(begin ...byte) func(*rand.Rand) netip.Addr {
	return func(random *rand.Rand) netip.Addr {
		a := [4]byte(binary.BigEndian.AppendUint32(nil, random.Uint32()))
		copy(a[:], begin)
		return netip.AddrFrom4(a)
	}
}

// within6 returns a random address of a /48 of IPv6.
func within6(random *rand.Rand) netip.Addr {
	a := [16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 1}
	binary.BigEndian.PutUint64(a[8:], random.Uint64())
	binary.BigEndian.PutUint16(a[6:], uint16(random.Uint32()))
	return netip.AddrFrom16(a)
}

// Sign-ins of other users stay fast under 120 wrong passwords a second, about twice as many as can be checked. Those of
// the flood are for the accounts of the numbers from 0, and those of users of the numbers below it.
func TestTurnQueue_FloodDoesNotDelayOtherSignIns(t *testing.T) {
	office, office6 := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:2::7")
	every := func(i int) string { return "someone" + strconv.Itoa(i) + "@example.org" }
	few := func(i int) string { return every(min(i, i&3)) }
	hers := func(int) string { return "ana@example.org" }
	atOffice := func(*rand.Rand) netip.Addr { return office }
	for name, c := range map[string]struct {
		from    func(*rand.Rand) netip.Addr
		account func(i int) string
		honest  netip.Addr
		known   bool
	}{
		"any address, any account; the browser is known":                {anywhere, every, office, true},
		"any address, the user's own account; the browser is known":     {anywhere, hers, office, true},
		"the user's own network; the browser is known":                  {atOffice, every, office, true},
		"any address, few accounts; a new browser":                      {anywhere, few, office, false},
		"a network of 65,536 addresses, any account; a new browser":     {within(203, 0), every, office, false},
		"a network of 16 million addresses, any account; a new browser": {within(10), every, office, false},
		"a /48 of IPv6, any account; a new browser":                     {within6, every, office6, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, random := newTurnQueue(fourCores), rand.New(rand.NewPCG(1, 2))
				var mu sync.Mutex
				refused := flood(t, q, func(i int) Caller {
					mu.Lock()
					defer mu.Unlock()
					return Caller{Email: c.account(i), Address: c.from(random)}
				})
				var waits []time.Duration
				honest := 6
				if c.known {
					honest = 18 // no more than the lane for known browsers has for one account
				}
				for i := range honest {
					began := time.Now()
					user := Caller{Email: c.account(-1 - i), Address: c.honest, Known: c.known}
					leave, err := q.enter(t.Context(), user)
					if err != nil {
						t.Errorf("sign-in %d: %v", i, err)
						continue
					}
					time.Sleep(hashTime)
					leave()
					waits = append(waits, time.Since(began))
					time.Sleep(237 * time.Millisecond)
				}
				if slowest := slices.Max(waits); len(waits) < honest || slowest > 300*time.Millisecond {
					t.Errorf("%d of %d sign-ins, the slowest in %v", len(waits), honest, slowest)
				}
				count := 0
				refused.Range(func(any, any) bool { count++; return true })
				if count == 0 {
					t.Error("the flood was not refused, so the test proves nothing")
				}
			})
		})
	}
}

// The right person at a new browser, from an address of their own, is in within three seconds, whenever they come after
// the start of a flood from 120 addresses of which none has failed before.
func TestTurnQueue_FloodsFirstSecondsDoNotLockOut(t *testing.T) {
	const hers = "ana@example.org"
	every := func(i int) string { return strconv.Itoa(i) + "@example.org" }
	spread := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{byte(11 + i%120), byte(i % 120), 0, 7}) }
	near := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(1 + i%120)}) }
	for name, c := range map[string]struct {
		from     func(i int) netip.Addr
		account  func(i int) string
		attacked int // wrong passwords of her account before
	}{
		"other accounts, from everywhere":          {spread, every, 0},
		"her own account, from everywhere":         {spread, func(int) string { return hers }, 0},
		"other accounts, from her own /24":         {near, every, 0},
		"her own account before, now others', /24": {near, every, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			for start := range 30 {
				synctest.Test(t, func(t *testing.T) {
					q := newTurnQueue(2)
					for range c.attacked {
						q.wrong(Caller{Email: hers})
					}
					sendWrongPasswords(t, q, func(i int) Caller {
						return Caller{Email: c.account(i), Address: c.from(i)}
					})
					time.Sleep(time.Duration(start) * 101 * time.Millisecond)
					began := time.Now()
					home := netip.MustParseAddr("198.51.100.200")
					leave, err := q.enter(t.Context(), Caller{Email: hers, Address: home})
					if err != nil {
						t.Fatalf("after %v of the flood: %v after %v", time.Duration(start)*101*time.Millisecond, err,
							time.Since(began))
					}
					leave()
				})
			}
		})
	}
}

// A caller that is quiet by one measure alone gets one of the next few turns of a flood that fills the queue, and is
// not the one that a full queue refuses.
func TestTurnQueue_OneQuietMeasureIsEnough(t *testing.T) {
	caller := func(email, address string) Caller { return Caller{Email: email, Address: netip.MustParseAddr(address)} }
	for name, quiet := range map[string]Caller{
		"address":       caller("attacked", "203.0.113.9"),
		"network":       caller("attacked", "203.0.200.1"),
		"wider network": caller("attacked", "198.51.100.1"),
		"account":       caller("ana", "203.0.113.1"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newTurnQueue(2)
				for range 40 {
					for _, address := range []string{"203.0.113.1", "203.0.200.2"} {
						q.wrong(caller("attacked", address))
					}
				}
				first := enter(t, q, Caller{Email: "first"})
				var all sync.WaitGroup
				var turns, before atomic.Int32
				all.Go(func() {
					leave, err := q.enter(t.Context(), quiet)
					if err != nil {
						t.Error(err)
						return
					}
					before.Store(turns.Load())
					leave()
				})
				synctest.Wait()
				for range 3 * maxWaiting {
					all.Go(func() {
						leave, err := q.enter(t.Context(), caller("attacked", "203.0.113.1"))
						if err == nil {
							turns.Add(1)
							leave()
						}
					})
					synctest.Wait()
				}
				first()
				all.Wait()
				if before.Load() > measures {
					t.Errorf("%d turns of the flood came before", before.Load())
				}
			})
		})
	}
}

func TestAttemptCounter_IsForgottenAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n attemptCounter
		n.add(3)
		time.Sleep(forgetEvery)
		n.add(1)
		n.add(-1)
		equal(t, "attempts, of three", n.attempts(time.Now()), 2)
		for range 1000 {
			n.add(1)
		}
		time.Sleep(longestMemory)
		equal(t, "attempts that were forgotten", n.attempts(time.Now()), 0)
		n.add(-1)
		equal(t, "attempts after one fewer", n.attempts(time.Now()), 0)
	})
}

// A caller who is quiet by no measure, because of a network that others use and an account that others attack, gets a
// turn of a flood whose every caller is new: the sixth.
func TestTurnQueue_SomeTurnsAreForTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, random := newTurnQueue(2), rand.New(rand.NewPCG(5, 6))
		noisy := Caller{Email: "attacked", Address: netip.MustParseAddr("198.51.100.7")}
		for range 40 {
			q.wrong(noisy)
		}
		first := enter(t, q, Caller{Email: "first"})
		var all sync.WaitGroup
		var turns atomic.Int32
		wait := func(c Caller) (before int32) {
			leave, err := q.enter(t.Context(), c)
			if err != nil {
				t.Error(err)
				return
			}
			defer leave()
			return turns.Add(1) - 1
		}
		for i := range 20 {
			c := Caller{Email: strconv.Itoa(i), Address: anywhere(random)}
			all.Go(func() { wait(c) })
			synctest.Wait()
		}
		all.Go(func() {
			equal(t, "turns of the flood before", wait(noisy), int32(measures))
		})
		synctest.Wait()
		first()
		all.Wait()
	})
}

// If nothing distinguishes a user from the flood, the newest goes first: some users are served at once. In a first-come
// queue all of them would wait until they give up.
func TestTurnQueue_NewestOfEqualsGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, random := newTurnQueue(fourCores), rand.New(rand.NewPCG(3, 4))
		var mu sync.Mutex
		flood(t, q, func(i int) Caller {
			mu.Lock()
			defer mu.Unlock()
			return Caller{Email: strconv.Itoa(i), Address: anywhere(random)}
		})
		soon := 0
		const tries = 20
		for i := range tries {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			mu.Lock()
			address, pause := anywhere(random), time.Duration(random.IntN(100))*time.Millisecond
			mu.Unlock()
			leave, err := q.enter(ctx, Caller{Email: "honest" + strconv.Itoa(i), Address: address})
			cancel()
			if err == nil {
				soon++
				time.Sleep(hashTime)
				leave()
			}
			time.Sleep(pause)
		}
		if soon < tries/10 {
			t.Errorf("%d of %d were served within half a second", soon, tries)
		}
	})
}

// The attacker's own account, at a browser that has signed in to it, opens the lane for known browsers only for a few
// checks.
func TestTurnQueue_KnownBrowserLaneIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurnQueue(fourCores)
		own := Caller{Email: "mallory@example.org", Address: netip.MustParseAddr("203.0.113.9"), Known: true}
		flood(t, q, func(int) Caller { return own })
		for i := range 10 {
			began := time.Now()
			user := Caller{Email: strconv.Itoa(i) + "@example.org", Address: netip.MustParseAddr("198.51.100.7")}
			leave, err := q.enter(t.Context(), user)
			if took := time.Since(began); err != nil || took > 100*time.Millisecond {
				t.Errorf("a new browser: %v after %v", err, took)
				continue
			}
			leave()
		}
	})
}

// On two cores, unknown browsers use one.
func TestTurnQueue_UnknownBrowsersUseHalfOfTheCores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurnQueue(2)
		first := enter(t, q, Caller{Email: "first"})
		began, entered := time.Now(), make(chan time.Duration, 1)
		go func() {
			leave, err := q.enter(t.Context(), Caller{Email: "second"})
			if err != nil {
				t.Error(err)
				return
			}
			leave()
			entered <- time.Since(began)
		}()
		synctest.Wait()
		leave, err := q.enter(t.Context(), Caller{Email: "known", Known: true})
		if err != nil || time.Since(began) != 0 {
			t.Fatalf("a known browser beside an unknown one: %v after %v", err, time.Since(began))
		}
		leave()
		time.Sleep(time.Second)
		first()
		equal(t, "the second unknown browser waits until the first leaves", <-entered, time.Second)
		if q.free != atOnce || q.unknown != 1 {
			t.Errorf("%d free, %d for unknown browsers", q.free, q.unknown)
		}
	})
}

func TestTurnQueue_WaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, release := busyQueue(t)
		began, outcomes := time.Now(), make(chan error, maxWaiting+1)
		for i := range maxWaiting + 1 {
			go func() {
				_, err := q.enter(t.Context(), Caller{Email: strconv.Itoa(i)})
				outcomes <- err
			}()
			synctest.Wait()
		}
		if err := <-outcomes; !errors.Is(err, ErrBusy) || time.Since(began) != 0 {
			t.Errorf("a caller beyond the queue: %v after %v", err, time.Since(began))
		}
		for range maxWaiting {
			if err := <-outcomes; !errors.Is(err, ErrBusy) || time.Since(began) != longestWait {
				t.Fatalf("%v after %v", err, time.Since(began))
			}
		}
		release()
		if q.free != atOnce || q.unknown != atOnce || len(q.waiting) != 0 {
			t.Errorf("%d free, %d for unknown browsers, %d waiting", q.free, q.unknown, len(q.waiting))
		}
	})
}
