package gate

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/usage"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A credential has at most two searches in flight, and a workspace runs as many at once as it may; others wait 2 s.
func TestEnterSearch_LimitsSearchesOfCredentialAndWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds, workspaceID := NewBounds(2), uuid.New()
		enter := func(token byte) (leave func(error), header string, err error) {
			held := presented{usage.OfHash([]byte{token})}
			w := httptest.NewRecorder()
			turn, err := bounds.requests.Enter(t.Context(), w.Header(), held.key())
			testkit.Must(t, err)
			defer turn.Leave(false)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			leave, err = bounds.enterSearch(w.Header(), r, held, turn, workspaceID)
			return leave, w.Header().Get("RateLimit"), err
		}
		var leave []func(error)
		for left := 1; left >= 0; left-- {
			one, header, err := enter(1)
			if want := fmt.Sprintf(`"requests-in-flight";r=63, "searches-in-flight";r=%d`, left); header != want {
				t.Errorf("%s, want %s", header, want)
			}
			testkit.Must(t, err)
			leave = append(leave, one)
		}
		refused := func(what string, token byte) {
			t.Helper()
			if _, _, err := enter(token); err == nil || apierr.Of(err).Kind != apierr.RateLimited {
				t.Errorf("the third search of a %s: %v", what, err)
			}
		}
		refused("credential", 1)
		began := time.Now()
		for range 3 { // each frees its place
			refused("workspace", 2)
		}
		if waited := time.Since(began); waited != 3*maxSearchWait {
			t.Errorf("waited %s", waited)
		}
		leave[0](nil)
		third, _, err := enter(2)
		testkit.Must(t, err) // after a search ended
		leave[1](nil)
		third(nil)
		if bounds.searches.Len() != 0 || bounds.workspaces.Len() != 0 {
			t.Error("searches that ended are counted")
		}
	})
}

// At most three long pages of one workspace are read at once. Another workspace does not wait for them.
func TestReadInTurn_LimitsConcurrentReadsPerWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := NewBounds(1)
		greedy := Caller{WorkspaceID: uuid.New(), reads: bounds.reads}
		other := Caller{WorkspaceID: uuid.New(), reads: bounds.reads}
		reading, release := 0, make(chan struct{})
		for range 10 {
			go func() {
				err := greedy.ReadInTurn(t.Context(), func() error {
					reading++ // one goroutine at a time: each comes to its wait before the next
					<-release
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		if reading != maxReads {
			t.Errorf("%d concurrent reads of one workspace, want %d", reading, maxReads)
		}
		read := false
		if err := other.ReadInTurn(t.Context(), func() error { read = true; return nil }); err != nil || !read {
			t.Errorf("read of another workspace did not run: %v", err)
		}
		for range 10 {
			release <- struct{}{}
			synctest.Wait()
		}
		if reading != 10 || bounds.reads.Len() != 0 {
			t.Errorf("%d of 10 pages were read, %d workspaces left in the table", reading, bounds.reads.Len())
		}
	})
}

// A read that fails because the store does not answer ends the wait of others; other failures do not.
func TestReadInTurn_UnavailableStoreEndsWaitOfOthers(t *testing.T) {
	unavailable := apierr.New(apierr.Unavailable, "The store does not answer.")
	for _, c := range []struct {
		failure error
		others  bool // fail too
	}{
		{nil, false}, {unavailable, true}, {apierr.New(apierr.NotFound, "No such form."), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			caller := Caller{WorkspaceID: uuid.New(), reads: NewBounds(1).reads}
			fail := make(chan struct{})
			for range maxReads {
				go func() { _ = caller.ReadInTurn(t.Context(), func() error { <-fail; return c.failure }) }()
			}
			synctest.Wait()
			var err error
			ended := make(chan struct{})
			go func() {
				err = caller.ReadInTurn(t.Context(), func() error { return nil })
				close(ended)
			}()
			time.Sleep(time.Second)
			close(fail)
			<-ended
			if (err != nil) != c.others || err != nil && apierr.Of(err).Kind != apierr.Unavailable {
				t.Errorf("after %v: %v", c.failure, err)
			}
		})
	}
}

// Responses in memory take at most a fifth of the memory limit, and those of one credential a third of that.
func TestBounds_LimitBytesOfResponses(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for limit, want := range map[int64]int{math.MaxInt64: 64 << 20, 1500: 300} {
		debug.SetMemoryLimit(limit)
		hold := NewBounds(1).bytes.Hold(presented{}.key())
		got := answerBytes()
		debug.SetMemoryLimit(before)
		if got != want || hold.Take(want/3+1) || !hold.Take(want/3) || hold.Take(1) {
			t.Errorf("memory limit %d: %d bytes, want %d, and a third for a credential", limit, got, want)
		}
	}
	if !ByteReserver(t.Context())(math.MaxInt) {
		t.Error("a request that was not admitted by a gate has no room")
	}
}

// The exports and searches of a plan run within the bounds. An export can ask whether it would be admitted still.
func TestGuard_ExportsAndSearchesWithinBounds(t *testing.T) {
	s := newSite(t)
	var failure error
	searched := 0
	plan := Plan{
		Export: true,
		Search: func(_ context.Context, caller Caller) error {
			searched++
			if caller.WorkspaceID != s.workspaceID {
				t.Errorf("%+v", caller)
			}
			return failure
		},
	}
	guard := s.api.Guard(perm.ProgrammesRead, func(*http.Request, uuid.UUID) (Plan, error) { return plan, nil })
	ask := func() answer { return send(t, guard, "/", s.pat, s.workspaceID.String()) }
	depth := 0
	plan.Serve = func(w http.ResponseWriter, r *http.Request, caller Caller) error {
		if depth++; depth < 3 {
			if a := ask(); a.Code != map[int]int{1: 204, 2: 429}[depth] {
				t.Errorf("an export beside %d others: %d %s", depth, a.Code, a.message)
			}
		} else {
			t.Error("three exports of a credential are served at once")
		}
		depth--
		if ByteReserver(r.Context())(answerBytes()) {
			t.Error("a request takes more than the share of its credential")
		}
		s.caller = caller
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	ask().wants(t, "an export", 204, "")
	if searched != 3 {
		t.Errorf("%d searches", searched)
	}
	failure = apierr.New(apierr.TooExpensive, "Too expensive.")
	for range MaxSearches + 1 { // each frees its place
		ask().wants(t, "a search that fails", http.StatusUnprocessableEntity, "Too expensive.")
	}
	still := s.caller.StillAdmitted
	testkit.Must(t, still(t.Context()))
	ends := func(code string) {
		t.Helper()
		if err := still(t.Context()); err == nil || apierr.Of(err).StableCode() != code {
			t.Errorf("%v, want %s", err, code)
		}
	}
	s.Exec("update account.tenant_modules set enabled = false where tenant_id = $1", s.workspaceID)
	ends("MODULE_NOT_ENABLED")
	s.Member(s.workspaceID, s.user)
	ends("FORBIDDEN")
	s.Exec("update account.personal_access_tokens set revoked_at = now() where user_id = $1", s.user)
	ends("UNAUTHENTICATED")
}
