package grant

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A GrantStore is the authoritative store of grants, in Postgres. Its errors wrap store.ErrUnavailable; those of
// Advance and AdvanceDirectly also wrap ErrNotCommitted if that is certain.
type GrantStore interface {
	// Snapshot reads, in one statement, the client with its live secret that has this hash, the grant and the standing
	// of its user. A zero key reads only the client, and a nil hash no secret. What does not exist is nil.
	Snapshot(ctx context.Context, clientID uuid.UUID, key Key, secretHash []byte) (Snapshot, error)
	// WorkspaceOf returns the workspace of a grant, or ErrUnknown. Tokens of the former format do not contain it.
	WorkspaceOf(ctx context.Context, grantID uuid.UUID) (uuid.UUID, error)
	// Approve assigns a number to an approval of a grant that may not exist yet. It does not change the grant.
	Approve(ctx context.Context, key Key) (Approval, error)
	// Open inserts a pending grant, or gives the pending grant with the same id a new code and what was approved with
	// it, as far as the workspace's policy allows it at that moment; otherwise it returns ErrPolicy. If what allowed
	// the approval has ended since it was checked, it returns audit.ErrNotAuthorized. A pending grant that a later
	// approval has changed stays unchanged. Open ends the pending grants of g.Instead, or returns ErrAlreadyUsed if one
	// of them was redeemed. It returns the grant's state.
	Open(ctx context.Context, g Grant, approval int) (State, error)
	// Deny ends a pending grant durably, with its audit event. It returns ErrAlreadyUsed if the grant is not pending.
	Deny(ctx context.Context, key Key, actor string) error
	// Advance moves a grant to the step's generation: an active one from any smaller generation, or a pending one if
	// its code has the step's binding, so that Postgres alone can prove the code's reuse. It is idempotent: the same
	// step succeeds again, and so does the step of a repeated request, which has the same hash (G11). A step that was
	// given up is refused.
	Advance(ctx context.Context, step Step) (UpdateResult, error)
	// AdvanceDirectly is Advance with the snapshot's checks in the same statement: the grant belongs to the client and
	// the resource of terms, the client exists and has no authentication, and Blocked would return NotBlocked. It
	// refuses a step that is taken, unless this try took it, and a scope that the grant does not have. It returns the
	// grant unless it refuses.
	AdvanceDirectly(ctx context.Context, step Step, terms CodeTerms, scope perm.Set) (Snapshot, UpdateResult, error)
	// Responds reports whether Postgres responded lately. It does no I/O.
	Responds() bool
	// CancelTries removes the tries with these nonces, whose requests got a 503, from those that took the step, and
	// prevents them from committing it later. If they were all that took it, the step is reverted (G10).
	CancelTries(ctx context.Context, step Step, nonces []string) error
	// Revoke ends the grant durably, with its audit event. A grant that has ended keeps its first reason.
	// reuse may be nil.
	Revoke(ctx context.Context, key Key, reason Reason, actor string, reuse *Reuse) error
}

// A RotationStore decides races over grants in Redis, with one script per decision. Its errors wrap
// store.ErrUnavailable, and ErrNotCommitted if certainly nothing was sent. A call with the nonce of an earlier call
// gets the same result (G8). Issue, Decide, Superseded and Repair change nothing after the deadline of their
// context by Redis's clock, whenever they arrive; all but Repair then return Late.
type RotationStore interface {
	// Responds reports whether the server of this grant responded to the last call. It does no I/O.
	Responds(ctx context.Context, id uuid.UUID) bool
	Issue(
		ctx context.Context, id uuid.UUID, approval int, codeHash []byte, terms CodeTerms, ends time.Time,
	) (ScriptResult, error)
	// Withdraw undoes Issue for an approval that Postgres has refused: the code that it replaced is valid again, unless
	// the grant was redeemed or has ended (G12).
	Withdraw(ctx context.Context, id uuid.UUID, approval int) (ScriptResult, error)
	// Decide runs the script of a code or of a refresh token, which stores the first of the hashes. A direct step only
	// replaces a current token, or redeems an unused code; otherwise it changes nothing and returns ReadFirst. A try
	// that was undone returns Late. If one of the hashes was stored less than 60 s ago, the request repeats the request
	// that stored it.
	Decide(ctx context.Context, step Step, r Request, next [][]byte) (ScriptResult, error)
	// Undo undoes the decision of the call with this nonce if nothing has happened since. A decision that other calls
	// repeat stays. overtaken reports that Postgres has refused the step, the grant is active, and the step does not
	// hold the last decision: there is a later one.
	Undo(ctx context.Context, id uuid.UUID, nonce string, how Undo) (overtaken bool, err error)
	// Superseded returns Again if the request with the hash of step repeats the request of the last decision, Undone if
	// every try that moved the grant in Postgres to its generation was undone, and otherwise Superseded. If step has a
	// nonce, it takes part in the last decision.
	Superseded(ctx context.Context, step Step, known Grant) (ScriptResult, error)
	Revoke(ctx context.Context, id uuid.UUID, reason Reason, ends time.Time) error
	Repair(ctx context.Context, g Grant) error
}

// A Service stores grants in both stores, in the order that the invariants require. It is safe for concurrent use.
type Service struct {
	Tokens *TokenCodec

	store     GrantStore
	rotations RotationStore
	log       *slog.Logger
	redisTime time.Duration // limit of one decision of Redis, retries included
	undoTime  time.Duration // limit of one call that undoes a decision in Redis
	limit     time.Duration // of the work after a script may have decided

	commitPause time.Duration // before an update of Postgres is repeated; twice as long each time

	undos   *undoQueue
	revoked func(uuid.UUID, Reason) // observes revocations, or nil
}

// NewService returns a Service over the two stores.
func NewService(grants GrantStore, rotations RotationStore, tokens *TokenCodec, log *slog.Logger) *Service {
	undos := &undoQueue{store: grants, log: log, grants: map[uuid.UUID]*pendingUndo{}}
	s := &Service{Tokens: tokens, store: grants, rotations: rotations, log: log, undos: undos}
	s.commitPause = commitPause
	s.WaitForStores(0)
	return s
}

// WaitForStores makes decisions, and what undoes them, wait longer for stores that do not respond; 0 changes nothing.
// Call it before the first decision.
func (s *Service) WaitForStores(wait time.Duration) {
	s.redisTime = max(redisTime, wait)
	s.undoTime = max(undoTime, wait/4)
	s.limit = decisionTime + stepWaits*wait
	s.undos.cancelTime, s.undos.waitTime = max(cancelTime, wait), max(waitTime, wait)
}

const (
	// decisionTime is the default limit of the work after a script may have decided. The caller's context no longer
	// counts then: a client that disconnects must not leave a decision half written.
	decisionTime = 5 * time.Second
	// stepWaits is how many times a decision may wait for a store: for Redis, and in Postgres for other steps, for a
	// connection, and for the statement.
	stepWaits = 4
)

// ErrAlreadyUsed reports that a consent was used: its code was redeemed, or the grant has ended.
var ErrAlreadyUsed = errors.New("consent already used")

// ErrUnknown reports that the grant does not exist.
var ErrUnknown = errors.New("no such grant")

// ErrPolicy reports that the workspace's connector policy allows nothing of what was approved.
var ErrPolicy = errors.New("the workspace's connector policy does not allow this")

// Snapshot reads a client and a grant; a zero key reads only the client. With the hash of a secret, it includes the
// client's live secret that has it, for client authentication. It waits for a limited time while a given-up decision
// about the grant is being undone in Postgres, and returns store.ErrUnavailable if that takes longer. A key without a
// workspace costs another read.
func (s *Service) Snapshot(ctx context.Context, clientID uuid.UUID, key Key, secretHash []byte) (Snapshot, error) {
	key, err := s.locate(ctx, key)
	if err != nil && !errors.Is(err, ErrUnknown) {
		return Snapshot{}, err
	}
	return s.store.Snapshot(ctx, clientID, key, secretHash)
}

// locate adds the workspace of the grant to key, because a token of the former format does not contain it. It then
// waits until no decision about the grant is being undone. Its error is ErrUnknown or wraps store.ErrUnavailable.
func (s *Service) locate(ctx context.Context, key Key) (Key, error) {
	if key.WorkspaceID == uuid.Nil && key.ID != uuid.Nil {
		var err error
		if key.WorkspaceID, err = s.store.WorkspaceOf(ctx, key.ID); err != nil {
			return key, err
		}
	}
	return key, s.undos.wait(ctx, key.ID)
}

// Open creates the pending grant of a consent and returns its code. A second call with the same id replaces a code that
// is still unused; after its redemption, Open returns ErrAlreadyUsed. A pending grant of g.Instead ends: one code of a
// request is valid. If the workspace's policy became narrower meanwhile, so does the grant, or Open returns ErrPolicy.
//
// Redis decides first whether the approval's code is valid, and only then Postgres stores what was approved. An
// approval that loses to the redemption of an earlier code therefore changes nothing. A redeemable code always has the
// permissions of its own approval in Postgres, because it is returned after they are committed (G12). An approval that
// Postgres refuses is withdrawn from Redis, so that the earlier code is valid again. A crash in between leaves a code
// that no client has.
func (s *Service) Open(ctx context.Context, g Grant, terms CodeTerms) (credential.Secret, error) {
	approval, err := s.store.Approve(ctx, g.Key())
	if err != nil {
		return "", err
	}
	key := g.Key()
	if !approval.CarriesWorkspace {
		key.WorkspaceID = uuid.Nil
	}
	secret, code := s.Tokens.New(Code, key, 0)
	g.State, g.CodeBinding = Pending, Binding(code.Hash, terms.RedirectURI, terms.Challenge)
	if approval.State != Pending {
		return "", ErrAlreadyUsed
	}
	if g.Life > 0 {
		g.Ends = approval.Now.Add(g.Life)
	}
	// A call without a response may be repeated: the approval's number distinguishes it from a later approval.
	result, _, err := s.callRedis(ctx, g.ID, func(ctx context.Context) (ScriptResult, error) {
		return s.rotations.Issue(ctx, g.ID, approval.Number, code.Hash, terms, g.Ends)
	})
	if err != nil {
		return "", err
	}
	if result != OK {
		return "", ErrAlreadyUsed
	}
	if _, err := s.store.Open(ctx, g, approval.Number); err != nil {
		if !errors.Is(err, store.ErrUnavailable) { // otherwise the approval may have been stored
			s.withdraw(ctx, g.ID, approval.Number)
		}
		return "", err
	}
	return secret, nil
}

// withdraw removes an approval that Postgres has refused from Redis, so that the earlier code is valid again (G12). If
// Redis does not respond, that code is lost, and nothing is granted.
func (s *Service) withdraw(ctx context.Context, id uuid.UUID, approval int) {
	ctx = context.WithoutCancel(ctx)
	_, _, err := s.callRedis(ctx, id, func(ctx context.Context) (ScriptResult, error) {
		return s.rotations.Withdraw(ctx, id, approval)
	})
	if err != nil {
		s.log.WarnContext(ctx, "rejected approval not removed from Redis; the earlier code is invalid",
			"grant_id", id, "error", err)
	}
}

// Deny ends the pending grant of a consent that the user refuses. It returns ErrAlreadyUsed if the code was redeemed
// before; the user can still disconnect the client.
func (s *Service) Deny(ctx context.Context, g Grant, actor string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	if err := s.store.Deny(ctx, g.Key(), actor); err != nil {
		return err
	}
	s.PropagateRevocation(ctx, g.ID, g.Ends, ByUser)
	return nil
}

// end revokes the grant for a reason that the client caused, and reports it once Postgres has committed (G9). If Redis
// has revoked already, Postgres may not have done so; the first request to see the revocation then commits it.
func (s *Service) end(ctx context.Context, g Grant, reason Reason, reuse *Reuse) error {
	if err := s.revoke(ctx, g, reason, "client:"+g.ClientID.String(), reuse); err != nil {
		return err
	}
	return &Refusal{Message: reason.Words(nil), Ended: reason}
}

// endReused is end for a request that presents a used code or refresh token.
func (s *Service) endReused(ctx context.Context, snapshot Snapshot, r Request) error {
	return s.end(ctx, *snapshot.Grant, r.reuseReason(), r.reuse(snapshot))
}

// Revoke ends a grant permanently (G7). It returns once Postgres has committed. Redis is updated if possible; nothing
// depends on it.
func (s *Service) Revoke(ctx context.Context, g Grant, reason Reason, actor string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	return s.revoke(ctx, g, reason, actor, nil)
}

func (s *Service) revoke(ctx context.Context, g Grant, reason Reason, actor string, reuse *Reuse) error {
	if err := s.store.Revoke(ctx, g.Key(), reason, actor, reuse); err != nil {
		return err
	}
	s.PropagateRevocation(ctx, g.ID, g.Ends, reason)
	return nil
}

// ObserveRevocations makes the service call the observer with each grant that ends before its time, whatever the cause.
// Call it before the first decision.
func (s *Service) ObserveRevocations(observer func(uuid.UUID, Reason)) { s.revoked = observer }

// PropagateRevocation revokes a grant in Redis that Postgres has revoked, perhaps in the transaction of its cause.
func (s *Service) PropagateRevocation(ctx context.Context, id uuid.UUID, ends time.Time, reason Reason) {
	if s.revoked != nil {
		s.revoked(id, reason)
	}
	if err := s.rotations.Revoke(ctx, id, reason, ends); err != nil {
		s.log.WarnContext(ctx, "revocation not propagated to Redis; Postgres still refuses the grant",
			"grant_id", id, "reason", reason, "error", err)
	}
}
