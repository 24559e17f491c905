package keys

import (
	"context"
	"errors"

	"github.com/lestrrat-go/jwx/v2/jwk"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
)

// A Verifier verifies the access tokens of one issuer with the keys of a Source. It is safe for concurrent use.
type Verifier struct {
	source *Source
	issuer string
}

// NewVerifier returns a verifier of issuer's tokens.
func NewVerifier(source *Source, issuer string) *Verifier { return &Verifier{source, issuer} }

// Verify returns the claims of a token, one of accesstoken's errors, or an *apierr.Error of kind Unavailable if there
// are no keys. A malformed token is refused without a fetch.
func (v *Verifier) Verify(ctx context.Context, text string) (accesstoken.Claims, error) {
	claims, err := v.byKept(text)
	if !errors.Is(err, accesstoken.ErrUnknownKey) {
		return claims, err
	}
	allowance := v.source.unknown
	if v.source.current() == nil {
		allowance = v.source.none
	}
	fetchErr := v.source.fetch(ctx, allowance)
	if v.source.current() == nil {
		return accesstoken.Claims{}, &apierr.Error{Kind: apierr.Unavailable, Cause: fetchErr,
			Message: "Access tokens cannot be checked at the moment. Try again in a few seconds."}
	}
	return v.byKept(text)
}

func (v *Verifier) byKept(text string) (accesstoken.Claims, error) {
	now, kept := v.source.now(), v.source.current()
	if kept == nil {
		return accesstoken.Verify(text, jwk.NewSet(), v.issuer, now) // ErrUnknownKey for every well-formed token
	}
	return kept.Verify(text, v.issuer, now)
}
