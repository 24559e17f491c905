package engine

import (
	"context"
	"errors"
	"regexp"

	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/accesstoken"
	"github.com/almonerhq/almoner/shared/credential"
)

// The two handlers replace fosite's own. Those read first and write later, which lets two simultaneous presentations of
// one code or token both succeed.
var (
	_ fosite.TokenEndpointHandler = (*codeHandler)(nil)
	_ fosite.TokenEndpointHandler = (*refreshHandler)(nil)
)

type codeHandler struct{ *Engine }

func (h *codeHandler) CanHandleTokenEndpointRequest(_ context.Context, r fosite.AccessRequester) bool {
	return r.GetGrantTypes().ExactOne(grantCode)
}

func (h *codeHandler) CanSkipClientAuth(context.Context, fosite.AccessRequester) bool { return false }

// A code verifier has 43 to 128 unreserved characters (RFC 7636, section 4.1).
var verifierPattern = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// HandleTokenEndpointRequest checks what depends on the kind of client. It decides nothing yet.
func (h *codeHandler) HandleTokenEndpointRequest(ctx context.Context, _ fosite.AccessRequester) error {
	x := exchangeOf(ctx)
	traits := x.facts.Client.Kind.Traits()
	switch {
	case traits.ResourceNeeded && x.request.Resource == "":
		return tokenError("invalid_request", "resource is required.")
	case traits.PKCERequired && x.request.Verifier == "":
		return tokenError("invalid_request", "code_verifier is required.")
	case x.forged:
		return tokenError("invalid_grant", "The authorization code is not known.")
	}
	return nil
}

// PopulateTokenEndpointResponse redeems the code and issues the tokens.
func (h *codeHandler) PopulateTokenEndpointResponse(
	ctx context.Context,
	r fosite.AccessRequester,
	w fosite.AccessResponder,
) error {
	if !h.CanHandleTokenEndpointRequest(ctx, r) {
		return fosite.ErrUnknownRequest
	}
	return h.respond(ctx, w, func(x *exchange) (grant.Issued, error) {
		resource := x.request.Resource
		if resource == "" && x.facts.Client.Kind == client.Confidential {
			resource = h.RESTResource
		}
		challenge := grant.ChallengeOf(x.request.Verifier)
		if x.request.Verifier != "" && !verifierPattern.MatchString(x.request.Verifier.Reveal()) {
			challenge = "malformed" // matches no challenge, and counts as a wrong attempt
		}
		return h.Grants.Redeem(ctx, x.facts, x.token, grant.CodeTerms{
			ClientID:    x.facts.Client.ID,
			RedirectURI: x.request.RedirectURI,
			Resource:    resource,
			Challenge:   challenge,
		})
	})
}

type refreshHandler struct{ *Engine }

func (h *refreshHandler) CanHandleTokenEndpointRequest(_ context.Context, r fosite.AccessRequester) bool {
	return r.GetGrantTypes().ExactOne(grantRefresh)
}

func (h *refreshHandler) CanSkipClientAuth(context.Context, fosite.AccessRequester) bool {
	return false
}

// HandleTokenEndpointRequest checks what depends on the kind of client. It decides nothing yet.
func (h *refreshHandler) HandleTokenEndpointRequest(ctx context.Context, _ fosite.AccessRequester) error {
	x := exchangeOf(ctx)
	switch {
	case !x.facts.Client.Kind.Traits().Refreshes:
		return tokenError(
			"unauthorized_client",
			"This kind of client has no refresh tokens: send the user to the consent page again.",
		)
	case x.request.Resource == "":
		return tokenError("invalid_request", "resource is required.")
	case x.forged:
		return tokenError("invalid_grant", "The refresh token is not known.")
	}
	return nil
}

// PopulateTokenEndpointResponse rotates the refresh token and issues the tokens.
func (h *refreshHandler) PopulateTokenEndpointResponse(
	ctx context.Context,
	r fosite.AccessRequester,
	w fosite.AccessResponder,
) error {
	if !h.CanHandleTokenEndpointRequest(ctx, r) {
		return fosite.ErrUnknownRequest
	}
	return h.respond(ctx, w, func(x *exchange) (grant.Issued, error) {
		return h.Grants.Rotate(ctx, x.facts, x.token, x.facts.Client.ID, x.request.Resource)
	})
}

func (e *Engine) respond(
	ctx context.Context,
	w fosite.AccessResponder,
	decide func(*exchange) (grant.Issued, error),
) error {
	x := exchangeOf(ctx)
	if x.forged {
		return fosite.ErrInvalidGrant // the handlers have refused it already, with a description
	}
	key, err := e.Signer.Current(ctx)
	if err != nil {
		return err
	}
	issued, err := decide(x)
	if refusal, ok := errors.AsType[*grant.Refusal](err); ok {
		x.ended = refusal.Ended
	}
	if err != nil {
		return err
	}
	sign := func(c accesstoken.Claims) (credential.Secret, error) { return accesstoken.Sign(key, c) }
	if err := e.issue(x, issued, sign); err != nil {
		return err
	}
	w.SetAccessToken("issued") // fosite requires one; the caller writes the response
	w.SetTokenType("bearer")
	return nil
}
