package oidc

import (
	"context"
	"errors"
	"slices"

	"github.com/coreos/go-oidc/v3/oidc"
)

// asymmetric returns the algorithms that may sign an ID token. Shared-secret algorithms and none are excluded.
func asymmetric() []string {
	return []string{
		oidc.RS256,
		oidc.RS384,
		oidc.RS512,
		oidc.ES256,
		oidc.ES384,
		oidc.ES512,
		oidc.PS256,
		oidc.PS384,
		oidc.PS512,
		oidc.EdDSA,
	}
}

// chosen returns the provider's algorithms that are accepted; RS256 if it names none (Discovery 1.0, section 3).
func chosen(offered []string) []string {
	var out []string
	for _, algorithm := range offered {
		if slices.Contains(asymmetric(), algorithm) {
			out = append(out, algorithm)
		}
	}
	return out
}

// keys are the provider's keys, fetched when an unknown one appears. A failed fetch is not the user's fault, but the
// library's verifier reports it only as text, so it is recorded in the context.
type keys struct{ remote *oidc.RemoteKeySet }

type keyFailureKey struct{}

// withKeyFailure returns a context in which VerifySignature sets failed if the keys cannot be fetched.
func withKeyFailure(ctx context.Context, failed *bool) context.Context {
	return context.WithValue(ctx, keyFailureKey{}, failed)
}

func (k keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.remote.VerifySignature(ctx, token)
	// A bad signature is an error without a cause; a failed fetch wraps its cause.
	if failed, ok := ctx.Value(keyFailureKey{}).(*bool); ok && errors.Unwrap(err) != nil {
		*failed = true
	}
	return payload, err
}
