package postgres_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
)

// The fence is tested here without Redis before it, which would hide a fault of the fence.

type ledger struct {
	*testing.T
	*postgres.Store
	world *fixture.Fixture
	grant grant.Grant
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{T: t, world: fixture.New(t)}
	var err error
	if l.Store, err = postgres.Open(t.Context(), credential.Secret(l.world.Database.Authserver)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	app := l.world.Connector("https://api.example.org/v1", perm.ProgrammesRead)
	l.grant = grant.Grant{
		ID:          uuid.New(),
		Kind:        app.Kind,
		ClientID:    app.ID,
		UserID:      l.world.Member(perm.ProgrammesRead),
		WorkspaceID: l.world.WorkspaceID,
		Permissions: perm.NewSet(
			perm.ProgrammesRead,
		),
		Resource:    app.Resource,
		CodeBinding: bytes.Repeat([]byte{1}, 32),
		Ends:        time.Now().Add(time.Hour),
	}
	return l
}

func hash(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// activate and advance take a step whose nonce is derived from its hash: the same step has the same nonce. activate
// redeems the code of the ledger's grant.
func (l *ledger) activate(ctx context.Context, id uuid.UUID, b byte) (grant.UpdateResult, error) {
	return l.Activate(ctx, grant.Step{GrantID: id, Nonce: nonce(hash(b)), Generation: 1, Hash: hash(b)}, hash(1))
}

func (l *ledger) advance(
	ctx context.Context,
	id uuid.UUID,
	generation uint32,
	hash []byte,
) (grant.UpdateResult, error) {
	return l.Advance(ctx, grant.Step{GrantID: id, Nonce: nonce(hash), Generation: generation, Hash: hash})
}

func nonce(hash []byte) string { return hex.EncodeToString(hash[:4]) }

// approve opens a grant as the next approval of it.
func (l *ledger) approve(ctx context.Context, g grant.Grant) (grant.State, error) {
	approval, err := l.Approve(ctx, g.ID)
	if err != nil {
		return "", err
	}
	return l.Open(ctx, g, approval.Number)
}

func (l *ledger) wantState(want grant.State) func(grant.State, error) {
	return func(got grant.State, err error) {
		l.Helper()
		if err != nil || got != want {
			l.Errorf("got %q %v, want %q", got, err, want)
		}
	}
}

func (l *ledger) wantFence(want grant.UpdateResult) func(grant.UpdateResult, error) {
	return func(got grant.UpdateResult, err error) {
		l.Helper()
		if err != nil || got != want {
			l.Errorf("got %v %v, want %v", got, err, want)
		}
	}
}

func TestOpenIsOneGrantHoweverOften(t *testing.T) {
	l := newLedger(t)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	again := l.grant
	again.CodeBinding = hash(2)
	again.Permissions = perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	again.Ends = again.Ends.Add(-time.Minute).Truncate(time.Second)
	l.wantState(grant.Pending)(l.approve(t.Context(), again))
	stored, err := l.Grant(t.Context(), l.grant.ID) // what was approved last, in every part
	if err != nil || !bytes.Equal(stored.CodeBinding, hash(2)) || len(stored.Permissions) != 2 ||
		!stored.Ends.Equal(again.Ends) {
		t.Errorf("%+v %v", stored, err)
	}
	l.wantFence(grant.Refused)(l.activate(t.Context(), l.grant.ID, 11)) // the code of the approval before
	l.wantFence(
		grant.Updated,
	)(
		l.Activate(t.Context(), grant.Step{GrantID: l.grant.ID, Nonce: "n", Generation: 1, Hash: hash(11)}, hash(2)),
	)
	l.wantState(grant.Active)(l.approve(t.Context(), again))
	var events int
	if err := l.world.Owner.QueryRow(t.Context(), `select count(*) from account.audit_events where action = 'grant.consented'`).Scan(&events); err != nil ||
		events != 2 {
		t.Errorf("%d events, %v", events, err)
	}
}

func TestOpen_AnEarlierApprovalDoesNotOverwriteALaterOne(t *testing.T) {
	l := newLedger(t)
	early, err := l.Approve(t.Context(), l.grant.ID)
	if err != nil || early.State != grant.Pending {
		t.Fatalf("%+v %v", early, err)
	}
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	wider := l.grant
	wider.CodeBinding, wider.Permissions = hash(2), perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	l.wantState(grant.Pending)(l.Open(t.Context(), wider, early.Number))
	stored, err := l.Grant(t.Context(), l.grant.ID)
	if err != nil || !bytes.Equal(stored.CodeBinding, hash(1)) || len(stored.Permissions) != 1 {
		t.Errorf("%+v %v", stored, err)
	}
}

func TestTheFenceLetsEachGenerationThroughOnce(t *testing.T) {
	l := newLedger(t)
	ctx, id := t.Context(), l.grant.ID
	l.wantFence(grant.Refused)(l.activate(ctx, uuid.New(), 11))
	l.wantState(grant.Pending)(l.approve(ctx, l.grant))
	l.wantFence(grant.Refused)(l.advance(ctx, id, 2, hash(12)))
	l.wantFence(grant.Updated)(l.activate(ctx, id, 11))
	l.wantFence(grant.Updated)(l.activate(ctx, id, 11)) // G8: our own retry
	l.wantFence(grant.Refused)(l.activate(ctx, id, 99)) // G1: Redis forgot
	l.wantFence(grant.Updated)(l.advance(ctx, id, 2, hash(12)))
	l.wantFence(grant.Updated)(l.advance(ctx, id, 2, hash(12)))
	l.wantFence(grant.Refused)(l.advance(ctx, id, 2, hash(99))) // G2
	l.wantFence(grant.Refused)(l.activate(ctx, id, 11))
	l.wantFence(grant.Updated)(l.advance(ctx, id, 5, hash(15)))
	l.wantFence(grant.Refused)(l.advance(ctx, id, 4, hash(14)))
	stored, err := l.Grant(ctx, id)
	if err != nil || stored.Generation != 5 || !bytes.Equal(stored.RefreshHash, hash(15)) || stored.LastUsed == nil {
		t.Errorf("%+v %v", stored, err)
	}
}

func TestG7_NothingPassesARevocationAndItsFirstReasonStays(t *testing.T) {
	l := newLedger(t)
	ctx, id := t.Context(), l.grant.ID
	l.wantState(grant.Pending)(l.approve(ctx, l.grant))
	l.wantFence(grant.Updated)(l.activate(ctx, id, 11))
	for _, reason := range []grant.Reason{grant.Replayed, grant.ByUser} {
		if err := l.Revoke(ctx, id, reason, "client:x"); err != nil {
			t.Fatal(err)
		}
	}
	l.wantFence(grant.Overtaken)(l.advance(ctx, id, 2, hash(12))) // revoked while this step was under way
	l.wantFence(grant.Refused)(l.advance(ctx, id, 5, hash(15)))
	l.wantFence(grant.Refused)(l.activate(ctx, id, 11))
	l.wantState(grant.Revoked)(l.approve(ctx, l.grant))
	stored, err := l.Grant(ctx, id)
	if err != nil || stored.State != grant.Revoked || stored.Reason != grant.Replayed || stored.Generation != 1 {
		t.Errorf("%+v %v", stored, err)
	}
	var events int
	if err := l.world.Owner.QueryRow(ctx, `select count(*) from account.audit_events where action = 'grant.revoked'`).Scan(&events); err != nil ||
		events != 1 {
		t.Errorf("%d events, %v", events, err)
	}
}

func TestFactsTellWhatIsThere(t *testing.T) {
	l := newLedger(t)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	facts, err := l.Facts(t.Context(), l.grant.ClientID, l.grant.ID)
	if err != nil || facts.Client == nil || facts.Grant == nil || !facts.Member || !facts.LLM || facts.UserDisabled ||
		!facts.Held.Has(perm.ProgrammesRead) ||
		facts.Now.IsZero() {
		t.Errorf("%+v %v", facts, err)
	}
	facts, err = l.Facts(t.Context(), l.grant.ClientID, uuid.Nil)
	if err != nil || facts.Client == nil || facts.Grant != nil || facts.Member {
		t.Errorf("%+v %v", facts, err)
	}
	facts, err = l.Facts(t.Context(), uuid.New(), l.grant.ID)
	if err != nil || facts.Client != nil || facts.Grant == nil {
		t.Errorf("%+v %v", facts, err)
	}
}

func TestTheServiceMayAddToTheAuditLogAndNeverRewriteIt(t *testing.T) {
	l := newLedger(t)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	for _, sql := range []string{
		`update account.audit_events set action = 'nothing'`,
		`delete from account.audit_events`,
		`truncate account.audit_events`,
		`drop table account.grants`,
	} {
		if err := l.Try(t.Context(), sql); err == nil {
			t.Errorf("the service's role may: %s", sql)
		}
	}
}

// Somebody holds the grant's row. That nothing was written is certain then, and the rotation can be taken back (G8).
func TestAnUpdateThatWaitsForALockIsCertainlyNotCommitted(t *testing.T) {
	l := newLedger(t)
	ctx, id := t.Context(), l.grant.ID
	l.wantState(grant.Pending)(l.approve(ctx, l.grant))
	l.wantFence(grant.Updated)(l.activate(ctx, id, 11))
	letGo := l.hold(id)
	if _, err := l.advance(ctx, id, 2, hash(12)); !errors.Is(err, store.ErrUnavailable) ||
		!errors.Is(err, grant.ErrNotCommitted) {
		t.Errorf("got %v, want that nothing was committed", err)
	}
	letGo()
	l.wantFence(grant.Updated)(l.advance(ctx, id, 2, hash(12)))
}
