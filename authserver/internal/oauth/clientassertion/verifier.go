package clientassertion

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Documents returns clients that have metadata documents. *clientmetadata.Resolver implements it.
type Documents interface {
	Client(ctx context.Context, address string) (client.Client, error)
	Refreshed(ctx context.Context, address string) (client.Client, error)
}

// A ReplayCache remembers accepted assertions. Its errors wrap store.ErrUnavailable.
type ReplayCache interface {
	// First reports whether key is new, and stores it for life.
	First(ctx context.Context, key string, life time.Duration) (bool, error)
}

// A Verifier verifies client assertions. It is safe for concurrent use.
type Verifier struct {
	Documents Documents
	Replays   ReplayCache
	Audiences []string // permitted values of aud: the issuer and the URL of the token endpoint
	Now       func() time.Time
}

// ClaimedClient returns the subject that the assertion claims, or "" if it has none. It verifies nothing.
func (v *Verifier) ClaimedClient(assertion credential.Secret) string {
	_, c, _ := read(assertion.Reveal())
	return c.Subject
}

// Verify returns nil if c signed the assertion and it was not used before. Its errors are *client.AssertionError, or
// wrap store.ErrUnavailable.
func (v *Verifier) Verify(ctx context.Context, c client.Client, assertion credential.Secret) error {
	now := v.Now()
	signed, err := v.verify(ctx, c, assertion.Reveal(), now, v.Documents.Client)
	if errors.Is(err, errUnknownKey) {
		signed, err = v.verify(ctx, c, assertion.Reveal(), now, v.Documents.Refreshed)
	}
	if errors.Is(err, errUnknownKey) {
		return refuse("client_assertion is signed with a key that is not in the client's metadata document.")
	}
	if err != nil {
		return err
	}
	first, err := v.Replays.First(ctx, key(c.Address, signed.id), signed.ends.Sub(now))
	if err != nil {
		return err
	}
	if !first {
		return refuse("client_assertion was already used. Use a new assertion for each request.")
	}
	return nil
}

func (v *Verifier) verify(
	ctx context.Context,
	c client.Client,
	text string,
	now time.Time,
	find func(context.Context, string) (client.Client, error),
) (verified, error) {
	known, err := find(ctx, c.Address)
	bad, isBad := errors.AsType[*client.DocumentError](err)
	switch {
	case errors.Is(err, client.ErrNotServed):
		return verified{}, refuse("The client is no longer accepted here.")
	case errors.Is(err, client.ErrUnreachable):
		return verified{}, fmt.Errorf("%w: the client's keys: %w", store.ErrUnavailable, err)
	case isBad:
		return verified{}, refuse("The client's metadata document is not valid. " + bad.Message)
	case err != nil:
		return verified{}, err
	case known.AuthMethod != client.PrivateKeyJWT:
		return verified{}, refuse(
			"The client's metadata document no longer has keys. Send the user to the consent page again.",
		)
	}
	return verify(text, c.Address, v.Audiences, known.Keys, now)
}

// key hashes the client's URL and its jti to a name of fixed length.
func key(address, id string) string {
	sum := sha256.Sum256([]byte(address + "\x00" + id))
	return hex.EncodeToString(sum[:])
}
