package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// many opens and activates n grants of n clients.
func (l *storeTest) many(n int) []grant.Grant {
	l.Helper()
	all := make([]grant.Grant, n)
	for i := range all {
		app := l.fixture.Connector(l.grant.Resource, perm.ProgrammesRead)
		g := l.grant
		g.ID, g.ClientID = uuid.New(), app.ID
		l.wantState(grant.Pending)(l.approve(l.Context(), g))
		l.wantResult(grant.Updated)(l.activate(l.Context(), g.ID, 11))
		all[i] = g
	}
	return all
}

// hold locks the row of a grant until release is called.
func (l *storeTest) hold(id uuid.UUID) (release func()) {
	l.Helper()
	holder, err := l.fixture.Owner.Begin(l.Context())
	if err == nil {
		_, err = holder.Exec(l.Context(), `select id from account.grants where tenant_id = $2 and id = $1 for update`,
			id, l.fixture.WorkspaceID)
	}
	if err != nil {
		l.Fatal(err)
	}
	return func() {
		l.Helper()
		if err := holder.Rollback(l.Context()); err != nil {
			l.Fatal(err)
		}
	}
}

func concurrently(n int, work func(int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { work(i) })
	}
	all.Wait()
}

// Concurrent queries return each caller its own grant and client.
func TestSnapshot_ConcurrentCallsReturnOwnGrantAndClient(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	grants := l.many(24)
	concurrently(len(grants)*4, func(i int) {
		own := grants[i%len(grants)]
		for round := range 20 {
			id := own.ID
			if round%4 == 3 {
				id = uuid.Nil
			}
			snapshot, err := l.Snapshot(t.Context(), own.ClientID, l.key(id))
			if err != nil || snapshot.Client.ID != own.ClientID || (snapshot.Grant == nil) != (id == uuid.Nil) ||
				(snapshot.Grant != nil && snapshot.Grant.ID != own.ID) {
				t.Errorf("queried %s, got %+v %v", own.ID, snapshot, err)
			}
		}
	})
}

func TestIntrospection_ConcurrentCallsReturnOwnResult(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	grants := l.many(12)
	tokens := make([][]byte, len(grants))
	for i := range tokens {
		tokens[i] = credential.Hash(
			l.fixture.Token(l.fixture.Member(perm.ProgrammesRead), perm.ProgrammesRead).Reveal())
	}
	l.publish("signing")
	owners := make([]uuid.UUID, len(tokens))
	for i, token := range tokens {
		_, known, _, err := l.Introspection(t.Context(), uuid.Nil, nil, standing.Query{PATHash: token})
		if err != nil || known == nil {
			t.Fatal(known, err)
		}
		owners[i] = known.UserID
	}
	concurrently(len(grants)*4, func(i int) {
		own, token, owner := grants[i%len(grants)], tokens[i%len(grants)], owners[i%len(grants)]
		for round := range 20 {
			q := standing.Query{GrantID: own.ID, GrantIn: own.WorkspaceID, KeyID: "signing"}
			switch round % 4 {
			case 1:
				q = standing.Query{PATHash: token}
			case 2:
				q.GrantID = uuid.New()
			}
			caller, known, issued, err := l.Introspection(t.Context(), own.ClientID, nil, q)
			right := err == nil && caller != nil && caller.ID == own.ClientID
			switch {
			case q.PATHash != nil:
				right = right && known != nil && known.UserID == owner && !issued.IsZero()
			case q.GrantID == own.ID:
				right = right && known != nil && known.CredentialID == own.ID && known.State == standing.Active &&
					issued.IsZero()
			default:
				right = right && known == nil && issued.IsZero()
			}
			if !right {
				t.Errorf("%s queried %+v, got %+v %+v %s %v", own.ClientID, q, caller, known, issued, err)
			}
		}
	})
	if caller, known, _, err := l.Introspection(t.Context(), uuid.New(), nil, standing.Query{
		GrantID: grants[0].ID,
		GrantIn: grants[0].WorkspaceID,
	}); err != nil || caller != nil || known == nil {
		t.Errorf("unknown caller: %+v %+v %v", caller, known, err)
	}
}

func TestAdvance_ConcurrentGrantsAdvanceIndependently(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	grants := l.many(24)
	const last = 40
	concurrently(len(grants), func(i int) {
		own := byte(100 + i)
		for generation := uint32(2); generation <= last; generation++ {
			switch result, err := l.advance(t.Context(), grants[i].ID, generation, hash(own)); {
			case err != nil || result != grant.Updated:
				t.Errorf("generation %d: %v %v", generation, result, err)
			case generation%5 == 0:
				l.wantResult(grant.Refused)(l.advance(t.Context(), grants[i].ID, generation, hash(own+100)))
				l.wantResult(grant.Refused)(l.advance(t.Context(), grants[i].ID, generation-1, hash(own)))
				l.wantResult(grant.Refused)(l.activate(t.Context(), grants[i].ID, own))
				l.wantResult(grant.Refused)(l.advance(t.Context(), uuid.New(), generation, hash(own)))
			}
		}
	})
	for i, g := range grants {
		stored, err := l.Grant(t.Context(), g.Key())
		if err != nil || stored.Generation != last || !bytes.Equal(stored.RefreshHash, hash(byte(100+i))) {
			t.Errorf("%+v %v", stored, err)
		}
	}
}

// Two processes, or a retry that overtakes, may write two steps of one grant at once: the later generation
// wins.
func TestAdvance_LaterOfTwoConcurrentStepsWins(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	one := l.many(1)[0]
	for generation := uint32(2); generation < 200; generation += 4 {
		results := make([]grant.UpdateResult, 4)
		concurrently(len(results), func(i int) {
			var err error
			if results[i], err = l.advance(t.Context(), one.ID, generation+uint32(i), hash(byte(i))); err != nil {
				t.Error(err)
			}
		})
		stored, err := l.Grant(t.Context(), one.Key())
		if err != nil || results[3] != grant.Updated || stored.Generation != generation+3 ||
			!bytes.Equal(stored.RefreshHash, hash(3)) {
			t.Errorf("%v, stored generation %d, want %d: %v", results, stored.Generation, generation+3, err)
		}
	}
}

func TestAdvance_LockedGrantDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	grants := l.many(12)
	held := grants[0]
	hasty, release := l.hasty(), l.hold(held.ID)
	concurrently(len(grants), func(i int) {
		if i == 0 {
			if _, err := hasty.advance(t.Context(), held.ID, 2, hash(2)); !errors.Is(err, grant.ErrNotCommitted) {
				t.Errorf("locked grant: %v", err)
			}
			return
		}
		for generation := uint32(2); generation < 40; generation++ {
			l.wantResult(grant.Updated)(l.advance(t.Context(), grants[i].ID, generation, hash(2)))
		}
	})
	release()
	l.wantResult(grant.Updated)(l.advance(t.Context(), held.ID, 2, hash(2)))
}

// A statement that was never sent is certainly not committed, so the rotation can be undone (G8). This holds
// if no connection became free, and if the remaining time would end during the statement.
func TestG8_UnsentStepIsNotCommitted(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	one := l.many(1)[0]
	hasty := l.hasty()
	release, err := hasty.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	concurrently(4, func(int) {
		if _, err := hasty.advance(t.Context(), one.ID, 2, hash(2)); !errors.Is(err, store.ErrUnavailable) ||
			!errors.Is(err, grant.ErrNotCommitted) {
			t.Errorf("without a connection: %v", err)
		}
	})
	release()
	release = l.hold(one.ID)
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // less than Postgres waits for a lock
	defer cancel()
	if _, err := l.advance(soon, one.ID, 2, hash(2)); !errors.Is(err, store.ErrUnavailable) ||
		!errors.Is(err, grant.ErrNotCommitted) {
		t.Errorf("with little time left: %v", err)
	}
	release()
	l.wantResult(grant.Updated)(l.advance(t.Context(), one.ID, 2, hash(2)))
}
