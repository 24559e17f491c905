package grant

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

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
