package engine

import (
	"context"
	"errors"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// An AssertionVerifier verifies the signed assertions of clients. *clientassertion.Verifier implements it.
type AssertionVerifier interface {
	// ClaimedClient returns the client that an assertion claims to be from, unverified.
	ClaimedClient(assertion credential.Secret) string
	// Verify verifies an assertion. Its errors are *client.AssertionError, or wrap store.ErrUnavailable.
	Verify(ctx context.Context, c client.Client, assertion credential.Secret) error
}

// noAssertions is the AssertionVerifier of a deployment without clients that sign.
type noAssertions struct{}

func (noAssertions) ClaimedClient(credential.Secret) string { return "" }

func (noAssertions) Verify(context.Context, client.Client, credential.Secret) error {
	return &client.AssertionError{Message: "private_key_jwt is not supported."}
}

// jwtBearer is the only supported assertion type (RFC 7523, section 2.2).
const jwtBearer = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// nameFromAssertion sets the client_id, which a client that signs may omit (RFC 7521, section 4.2).
func (e *Engine) nameFromAssertion(r *TokenRequest) {
	if r.ClientID == "" && r.Assertion != "" && r.Dialect == Form {
		r.ClientID = e.Assertions.ClaimedClient(r.Assertion)
	}
}

// verifyAssertion requires a valid assertion of a client that signs. For other clients an assertion is an unknown
// parameter. Every failure that the client caused is invalid_client.
func (e *Engine) verifyAssertion(ctx context.Context, r TokenRequest, c client.Client) error {
	if c.AuthMethod != client.PrivateKeyJWT {
		return nil
	}
	if r.Assertion == "" || r.AssertionType != jwtBearer {
		return tokenError(
			"invalid_client",
			"This client must authenticate with client_assertion and client_assertion_type "+jwtBearer+".",
		)
	}
	err := e.Assertions.Verify(ctx, c, r.Assertion)
	if refused, ok := errors.AsType[*client.AssertionError](err); ok {
		return tokenError("invalid_client", refused.Message)
	}
	return err
}
