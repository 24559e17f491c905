package grant

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A Sender is what a token request says about its sender.
type Sender struct {
	Proof     Proof
	Network   string // shortened; "" if it is unknown
	UserAgent string // shortened

	// LoadKey loads one of these keys, none of which is removed, to sign the access token. If it returns an error, the
	// credential is not used up (G10). It may be nil.
	LoadKey func(ctx context.Context, keyIDs []string) error
}

func (s Sender) loadKey(ctx context.Context, snapshot Snapshot) error {
	if s.LoadKey == nil {
		return nil
	}
	return s.LoadKey(ctx, snapshot.KeyIDs)
}

// newNonce returns a nonce of 16 characters. Three nonces with separators stay below the size at which Redis stores a
// grant less compactly (KEYS.md).
func newNonce() string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(random[:])
}

// A supersededBy is the reason why Postgres holds a later step than the presented credential. The zero value means that
// another request used the credential.
type supersededBy struct {
	repeats bool // this request repeats the one that got the successor (G11)
	step    Step
	next    successor

	undone bool // no client has the successor, and the step was reverted (G10)
	now    Snapshot
}

// whySuperseded returns why Postgres holds the step after the presented credential. Only Redis knows whether the
// request repeats an earlier one within 60 s, and whether another process gave the step up but has not yet reverted it
// in Postgres. In that case, this request is the retry of a client that got a 503. The error is store.ErrUnavailable if
// Redis does not respond. Redis is not needed for a credential two steps old: Postgres proves that it was used.
// matches reports whether the other parameters of r are those of the request that got the successor.
func (s *Service) whySuperseded(
	ctx context.Context, snapshot Snapshot, r Request, matches bool,
) (supersededBy, error) {
	g := snapshot.Grant
	if g == nil || g.State != Active || g.Generation != r.Token.Generation+1 {
		return supersededBy{}, nil
	}
	var next successor
	derived := matches && r.Sender.Proof != Proof{}
	if derived {
		next, derived = s.tokens.successorsOf(r.Token, r.Sender.Proof).with(g.RefreshHash)
	}
	step := r.step(next)
	step.GivenUp = g.GivenUp
	refusal := snapshot.standingRefusal()
	ask := func(ctx context.Context) (ScriptResult, error) { return s.rotations.Superseded(ctx, step, *g) }
	var result ScriptResult
	var err error
	if derived && refusal == nil {
		result, err = s.decide(ctx, step, ask)
	} else { // this try does not take part in the last decision
		step.Nonce = ""
		result, _, err = s.callRedis(ctx, g.ID, ask)
	}
	switch {
	case err != nil:
		return supersededBy{}, err
	case result == Again && refusal != nil:
		return supersededBy{}, refusal
	case result == Again:
		return supersededBy{repeats: true, step: step, next: next}, nil
	case result != Undone:
		return supersededBy{}, nil
	}
	step.Hash = g.RefreshHash
	if err := s.store.CancelTries(ctx, step, g.TakenBy); err != nil {
		return supersededBy{}, err
	}
	now, err := s.store.Snapshot(ctx, g.ClientID, g.Key(), nil)
	return supersededBy{undone: err == nil, now: now}, err
}

// repeat returns the refresh token of an earlier request. It also commits the step, because the earlier request may be
// in progress or may be given up: the token must stay current if any of the requests returns it.
func (s *Service) repeat(
	ctx context.Context, snapshot Snapshot, step Step, next successor, r Request,
) (Issued, error) {
	outcome, err := s.commit(ctx, step, snapshot, r)
	if err != nil {
		return Issued{}, err
	}
	if outcome != Updated {
		now, err := s.store.Snapshot(ctx, snapshot.Grant.ClientID, step.Key(), nil)
		if err != nil {
			return Issued{}, err
		}
		if err := s.refuseRepeated(ctx, now, r); err != nil {
			return Issued{}, err
		}
	}
	issued := snapshot.issue(next)
	issued.Repeated = true
	return issued, nil
}

// refuseRepeated returns why the token cannot be returned although Redis allowed it. It returns nil if the client used
// the token after this request began.
func (s *Service) refuseRepeated(ctx context.Context, now Snapshot, r Request) error {
	g := now.Grant
	switch {
	case g == nil:
		return refuse(unknownToken)
	case g.State == Revoked:
		return refuse(g.Reason.Words(g.RevokedAt))
	case g.State == Active && g.Generation > r.Token.Generation+1:
		return nil
	}
	return s.end(ctx, *g, r.reuse(), r.Sender.ending(now, r.Token))
}

// A Proof identifies the sender of a request. A repeated request gets the refresh token of the first only if it has the
// same Proof (G11). A request with the zero Proof cannot be repeated.
type Proof struct{ digest string }

// ProofByKey returns the proof of a request with this Idempotency-Key.
func ProofByKey(key credential.Secret) Proof { return proofOf("idempotency key", key.Reveal()) }

// ProofByClient returns the proof of a request whose client has authenticated with a fresh signature.
func ProofByClient(clientID string) Proof { return proofOf("client", clientID) }

// For returns the proof of the same sender for a refresh with this scope, so that a request with another scope does not
// repeat it. The scope of most refreshes is empty and changes nothing.
func (p Proof) For(scope perm.Set) Proof {
	if p == (Proof{}) || len(scope) == 0 {
		return p
	}
	return proofOf("scope", p.digest+scope.Scope())
}

func proofOf(kind, text string) Proof {
	sum := sha256.Sum256([]byte(kind + "\x00" + text))
	return Proof{string(sum[:])}
}

// A successor is the refresh token that follows a code or refresh token, and its hash, which the stores hold.
type successor struct {
	secret credential.Secret
	hash   []byte
}

// successors are the tokens that may follow a credential, one for each master key. The first is stored. A process with
// the same master keys in another order stores another one for the same request.
type successors []successor

// hashes returns the hashes of the successors.
func (s successors) hashes() [][]byte {
	out := make([][]byte, len(s))
	for i, one := range s {
		out[i] = one.hash
	}
	return out
}

// with returns the successor with this hash.
func (s successors) with(hash []byte) (successor, bool) {
	at := slices.IndexFunc(s, func(one successor) bool { return bytes.Equal(one.hash, hash) })
	if at < 0 {
		return successor{}, false
	}
	return s[at], true
}

// successorsOf returns the tokens that may follow a presented credential. With a proof, they are derived from the
// credential and the proof, so that a repeated request gets the same tokens although they are not stored. Their random
// parts, and therefore their hashes, are the same in both formats, so that processes of two releases recognise each
// other's tokens. Without a proof, there is one random token.
func (t *TokenCodec) successorsOf(presented Token, proof Proof) successors {
	generation := presented.Generation + 1
	grant := presented.Key()
	if presented.former {
		grant.WorkspaceID = uuid.Nil
	}
	if proof.digest == "" {
		secret, token := t.New(Refresh, grant, generation)
		return successors{{secret, token.Hash}}
	}
	keys, derivers := t.current()
	out := make(successors, len(keys))
	for i, key := range derivers {
		h := hmac.New(sha256.New, key)
		h.Write(presented.GrantID[:])
		_ = binary.Write(h, binary.BigEndian, generation)
		h.Write([]byte(presented.random.Reveal()))
		h.Write([]byte(proof.digest))
		secret, token := makeToken(keys[i], Refresh, grant, generation, h.Sum(nil))
		out[i] = successor{secret, token.Hash}
	}
	return out
}
