package oidc

import (
	"context"
	"errors"
	"slices"

	"github.com/coreos/go-oidc/v3/oidc"
)

// asymmetric are the algorithms by which an ID token may be signed. Those with a shared secret, and none, are not among
// them.
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

// chosen are those of the provider's algorithms that we take; RS256 where it names none (Discovery 1.0, section 3).
func chosen(offered []string) []string {
	var out []string
	for _, algorithm := range offered {
		if slices.Contains(asymmetric(), algorithm) {
			out = append(out, algorithm)
		}
	}
	return out
}

// keys are the provider's, fetched when an unknown one is met. That they cannot be fetched is nobody's fault at the
// browser; the library's verifier passes that on as text alone, so it is noted here on the way.
type keys struct{ remote *oidc.RemoteKeySet }

type keysNote struct{}

// noting returns a context whose keys say in failed that they could not be fetched.
func noting(ctx context.Context, failed *bool) context.Context {
	return context.WithValue(ctx, keysNote{}, failed)
}

func (k keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.remote.VerifySignature(ctx, token)
	// A bad signature is an error of its own; one of fetching wraps its cause.
	if failed, noted := ctx.Value(keysNote{}).(*bool); noted && errors.Unwrap(err) != nil {
		*failed = true
	}
	return payload, err
}
