package engine

import (
	"context"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Length limits of an Idempotency-Key (contract, section 3). A thief of the token could guess a shorter key.
const (
	shortestKey = 16
	longestKey  = 255
)

func checkKey(keys []credential.Secret) error {
	valid := len(keys) <= 1
	for _, key := range keys {
		text := key.Reveal()
		valid = valid && len(text) >= shortestKey && len(text) <= longestKey &&
			!strings.ContainsFunc(text, func(c rune) bool { return c < '!' || c > '~' })
	}
	if !valid {
		return tokenError(
			"invalid_request",
			"Idempotency-Key must be given once, as 16 to 255 visible ASCII characters.",
		)
	}
	return nil
}

// sender returns the sender of the request. Its proof is the Idempotency-Key or, without a key, the signature of a
// private_key_jwt client (G11).
func (e *Engine) sender(x *exchange) grant.Sender {
	sender := grant.Sender{
		Network:   x.request.Network,
		UserAgent: x.request.UserAgent,
		LoadKey: func(ctx context.Context, keyIDs []string) (err error) {
			x.key, err = e.Signer.CurrentAmong(ctx, keyIDs)
			return err
		},
	}
	switch {
	case len(x.request.IdempotencyKeys) > 0:
		sender.Proof = grant.ProofByKey(x.request.IdempotencyKeys[0])
	case x.snapshot.Client.AuthMethod == client.PrivateKeyJWT: // authenticate has verified its assertion
		sender.Proof = grant.ProofByClient(x.snapshot.Client.PublicID())
	}
	sender.Proof = sender.Proof.For(x.scope)
	return sender
}
