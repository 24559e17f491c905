package webhook

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/seal"
)

// SecretPrefix is the prefix of every secret (Standard Webhooks).
const SecretPrefix = "whsec_"

const secretBytes = 32

// NewSecret makes the secret of an endpoint from random, which must be a cryptographic source.
func NewSecret(random io.Reader) (credential.Secret, error) {
	key := make([]byte, secretBytes)
	if _, err := io.ReadFull(random, key); err != nil {
		return "", fmt.Errorf("create the secret of a webhook endpoint: %w", err)
	}
	return credential.Secret(SecretPrefix + base64.StdEncoding.EncodeToString(key)), nil
}

// A Sealed is the stored secret of an endpoint: encrypted to a public key of resourceapi (HPKE, RFC 9180).
type Sealed struct {
	Secret []byte
	Key    []byte // the public key
}

// Seal encrypts the secret of an endpoint to a public key, so that only resourceapi can read it.
func Seal(publicKey []byte, endpoint uuid.UUID, secret credential.Secret) (Sealed, error) {
	curve, err := ecdh.X25519().NewPublicKey(publicKey)
	if err != nil {
		return Sealed{}, fmt.Errorf("seal the secret of a webhook endpoint: %w", err)
	}
	key, err := hpke.NewDHKEMPublicKey(curve)
	if err != nil {
		return Sealed{}, fmt.Errorf("seal the secret of a webhook endpoint: %w", err)
	}
	sealed, err := hpke.Seal(key, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), info(endpoint), []byte(secret.Reveal()))
	if err != nil {
		return Sealed{}, fmt.Errorf("seal the secret of a webhook endpoint: %w", err)
	}
	return Sealed{Secret: sealed, Key: publicKey}, nil
}

// info binds a sealed secret to its endpoint.
func info(endpoint uuid.UUID) []byte { return []byte("almoner webhook secret " + endpoint.String()) }

// Keys are the private keys of resourceapi, newest first. They change when the master keys are replaced.
type Keys struct {
	private *seal.Derived[[]*ecdh.PrivateKey]
}

// NewKeys derives the keys from the master keys of resourceapi.
func NewKeys(master seal.Keys) (*Keys, error) {
	seeds := seal.Purposes("webhook secrets")
	private, err := seal.Derive(master, func(masters [][]byte) ([]*ecdh.PrivateKey, error) {
		derived, err := seeds(masters)
		if err != nil {
			return nil, err
		}
		var keys []*ecdh.PrivateKey
		for _, seed := range derived[0] {
			private, err := ecdh.X25519().NewPrivateKey(seed)
			if err != nil {
				return nil, fmt.Errorf("derive the key of webhook secrets: %w", err)
			}
			keys = append(keys, private)
		}
		return keys, nil
	})
	return &Keys{private}, err
}

// Public returns the public key for sealing secrets.
func (k *Keys) Public() []byte { return k.private.Now()[0].PublicKey().Bytes() }

// Open returns the secret of an endpoint, or seal.ErrForeign if it was sealed with a key that is not configured.
func (k *Keys) Open(endpoint uuid.UUID, sealed Sealed) (credential.Secret, error) {
	for _, private := range k.private.Now() {
		if !bytes.Equal(private.PublicKey().Bytes(), sealed.Key) {
			continue
		}
		key, err := hpke.NewDHKEMPrivateKey(private)
		if err != nil {
			return "", fmt.Errorf("open the secret of a webhook endpoint: %w", err)
		}
		secret, err := hpke.Open(key, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), info(endpoint), sealed.Secret)
		if err != nil {
			return "", seal.ErrForeign
		}
		return credential.Secret(secret), nil
	}
	return "", seal.ErrForeign
}
