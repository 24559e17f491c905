package gate

import (
	"context"
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
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// A credential has at most two searches in flight, and a workspace runs as many at once as it may; others wait 2 s.
func TestEnterSearch_LimitsSearchesOfCredentialAndWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds, workspaceID := NewBounds(2), uuid.New()
		enter := func(token byte) (leave func(error), header string, err error) {
			held := presented{question: standing.Query{PATHash: []byte{token}}}
			w := httptest.NewRecorder()
			turn, err := bounds.requests.Enter(t.Context(), w.Header(), held.key())
			if err != nil {
				t.Fatal(err)
			}
			defer turn.Leave(false)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			leave, err = bounds.enterSearch(w.Header(), r, held, turn, workspaceID)
			return leave, w.Header().Get("RateLimit"), err
		}
		first, header, err := enter(1)
		if err != nil || header != `"requests-in-flight";r=63, "searches-in-flight";r=1` {
			t.Fatalf("%s, %v", header, err)
		}
		second, header, err := enter(1)
		if err != nil || header != `"requests-in-flight";r=63, "searches-in-flight";r=0` {
			t.Fatalf("%s, %v", header, err)
		}
		if _, _, err = enter(1); err == nil || apierr.Of(err).Kind != apierr.RateLimited {
			t.Errorf("the third search of a credential: %v", err)
		}
		began := time.Now()
		for range 3 { // each frees its place
			if _, _, err = enter(2); err == nil || apierr.Of(err).Kind != apierr.RateLimited {
				t.Errorf("the third search of a workspace: %v", err)
			}
		}
		if waited := time.Since(began); waited != 3*maxSearchWait {
			t.Errorf("waited %s", waited)
		}
		first(nil)
		third, _, err := enter(2)
		if err != nil {
			t.Errorf("after a search ended: %v", err)
		}
		second(nil)
		third(nil)
		if bounds.searches.Len() != 0 || bounds.workspaces.Len() != 0 {
			t.Error("searches that ended are counted")
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
	if err := still(t.Context()); err != nil {
		t.Error(err)
	}
	s.Exec("update account.tenant_modules set enabled = false where tenant_id = $1", s.workspaceID)
	if err := still(t.Context()); err == nil || apierr.Of(err).StableCode() != "MODULE_NOT_ENABLED" {
		t.Errorf("after the module was turned off: %v", err)
	}
	s.Member(s.workspaceID, s.user)
	if err := still(t.Context()); err == nil || apierr.Of(err).StableCode() != "FORBIDDEN" {
		t.Errorf("after the permission was taken: %v", err)
	}
	s.Exec("update account.personal_access_tokens set revoked_at = now() where user_id = $1", s.user)
	if err := still(t.Context()); err == nil || apierr.Of(err).Kind != apierr.Unauthenticated {
		t.Errorf("after the credential ended: %v", err)
	}
}
