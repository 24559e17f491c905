package engine

import (
	"context"
	"errors"
	"regexp"
	"slices"

	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A grantType is a value of the parameter grant_type. Each has an entry in grantTypes. The parameters
// that the token endpoint reads, the metadata and the metrics derive from the entries.
type grantType struct {
	name     string
	required []string // a request without one of them is refused before any I/O; the error names the first
	optional []string
	formOnly bool // required applies only to the dialect Form; clients of the other dialect cannot use this type

	// presents is the parameter with the code or token that a request exchanges, and kind is its kind. Both are "" for
	// a type that exchanges none.
	presents string
	kind     grant.TokenKind

	// check refuses requests that the kind of client cannot make, and reads what the request says about its code or
	// token. It reads and changes no store.
	check func(*Engine, *exchange) error
}

// grantTypes are the supported grant types. The first is the default of JSON requests.
var grantTypes = []grantType{authorizationCode, refreshToken}

// GrantTypes returns the values of grant_type that the token endpoint accepts, the default of JSON requests first.
func GrantTypes() []string {
	names := make([]string, len(grantTypes))
	for i, t := range grantTypes {
		names[i] = t.name
	}
	return names
}

// Parameters returns the parameters of the grant types that a JSON body may have. Those that only a form has are
// unknown there, like any other name.
func Parameters() (names []string) {
	for _, t := range grantTypes {
		names = append(names, t.required...)
		if !t.formOnly {
			names = append(names, t.optional...)
		}
	}
	return names
}

func grantTypeOf(name string) (grantType, bool) {
	for _, t := range grantTypes {
		if t.name == name {
			return t, true
		}
	}
	return grantType{}, false
}

// missing returns the first required parameter that the request does not have, or "".
func (g grantType) missing(r TokenRequest) string {
	if g.formOnly && r.Dialect != Form {
		return ""
	}
	for _, name := range g.required {
		if r.Parameters[name] == "" {
			return name
		}
	}
	return ""
}

// Presented returns the code or token that the request presents if this server issued it.
func Presented(tokens *grant.TokenCodec, r TokenRequest) (grant.Token, bool) {
	for _, t := range slices.Backward(grantTypes) {
		if t.presents == "" {
			continue
		}
		if token, err := tokens.Read(t.kind, r.Parameters[t.presents].Reveal()); err == nil {
			return token, true
		}
	}
	return grant.Token{}, false
}

// A grantHandler is fosite's handler of a grant type. fosite's own handlers read first and write later, which lets two
// simultaneous presentations of one code or token both succeed.
type grantHandler struct {
	*Engine
	grantType
}

var _ fosite.TokenEndpointHandler = grantHandler{}

func (g grantHandler) CanHandleTokenEndpointRequest(_ context.Context, r fosite.AccessRequester) bool {
	return r.GetGrantTypes().ExactOne(g.name)
}

func (g grantHandler) CanSkipClientAuth(context.Context, fosite.AccessRequester) bool { return false }

// HandleTokenEndpointRequest makes the checks before the decision. The proof of the request's sender is the
// Idempotency-Key or, without a key, the signature of a private_key_jwt client (G11).
func (g grantHandler) HandleTokenEndpointRequest(_ context.Context, r fosite.AccessRequester) error {
	x := exchangeOf(r)
	if err := g.check(g.Engine, x); err != nil {
		return err
	}
	switch keys := x.request.IdempotencyKeys; {
	case len(keys) > 0:
		x.asked.Sender.Proof = grant.ProofByKey(keys[0], x.asked.Scope)
	case x.snapshot.Client.AuthMethod == client.PrivateKeyJWT: // authenticate has verified its assertion
		x.asked.Sender.Proof = grant.ProofByClient(x.snapshot.Client.PublicID(), x.asked.Scope)
	}
	return nil
}

// PopulateTokenEndpointResponse decides, directly if it can, and issues the tokens.
func (g grantHandler) PopulateTokenEndpointResponse(
	ctx context.Context, r fosite.AccessRequester, w fosite.AccessResponder,
) (err error) {
	if !g.CanHandleTokenEndpointRequest(ctx, r) {
		return fosite.ErrUnknownRequest
	}
	x := exchangeOf(r)
	if x.forged {
		return fosite.ErrInvalidGrant // check has refused it already, with a description
	}
	if _, err = g.Signer.Current(ctx); err != nil {
		return err
	}
	var issued grant.Issued
	var done bool
	if x.direct {
		if issued, done, err = g.Grants.ExchangeDirectly(ctx, x.asked); done {
			x.snapshot.Grant = &issued.Grant
			x.recordCaller(ctx)
		}
	}
	if !done && err == nil {
		issued, err = g.decideWithSnapshot(ctx, r)
	}
	if err != nil {
		return err
	}
	if err = g.issue(x, issued); err != nil {
		return err
	}
	w.SetAccessToken("issued") // fosite requires one; the caller writes the response
	w.SetTokenType("bearer")
	return nil
}

// decideWithSnapshot decides with a snapshot, which it reads if a direct decision was not possible.
func (g grantHandler) decideWithSnapshot(
	ctx context.Context, r fosite.AccessRequester,
) (issued grant.Issued, err error) {
	x := exchangeOf(r)
	if x.direct {
		if err = g.identify(ctx, x, x.snapshot.Client.ID); err == nil {
			err = g.HandleTokenEndpointRequest(ctx, r)
		}
	}
	if err == nil {
		issued, err = g.Grants.Exchange(ctx, x.snapshot, x.asked)
	}
	if err == nil {
		g.refused.Remove(x.asked.Token.GrantID)
	} else if !errors.Is(err, store.ErrUnavailable) {
		g.refused.Add(x.asked.Token.GrantID, struct{}{})
	}
	if refusal, ok := errors.AsType[*grant.Refusal](err); ok {
		x.ended = refusal.Ended
	}
	return issued, err
}

// authorizationCode redeems the code of a consent (RFC 6749, section 4.1.3).
var authorizationCode = grantType{
	name:     "authorization_code",
	required: []string{"code", "redirect_uri"},
	optional: []string{"code_verifier", "resource"},
	presents: "code",
	kind:     grant.Code,
	check:    checkCode,
}

func checkCode(e *Engine, x *exchange) error {
	traits := x.snapshot.Client.Kind.Traits()
	resource, verifier := x.request.Parameters["resource"], x.request.Parameters["code_verifier"]
	switch {
	case traits.ResourceNeeded && resource == "":
		return tokenError("invalid_request", "resource is required."+librariesHelp)
	case traits.PKCERequired && verifier == "":
		return tokenError("invalid_request", "code_verifier is required."+librariesHelp)
	case x.forged:
		return tokenError("invalid_grant", "The authorization code is unknown.")
	}
	if resource == "" && x.snapshot.Client.Kind == client.Confidential {
		resource = credential.Secret(e.RESTResource)
	}
	challenge := grant.ChallengeOf(verifier)
	if verifier != "" && !verifierPattern.MatchString(verifier.Reveal()) {
		challenge = "malformed" // matches no challenge, and counts as a wrong attempt
	}
	x.asked.Terms = grant.CodeTerms{
		ClientID:    x.snapshot.Client.ID,
		RedirectURI: x.request.Parameters["redirect_uri"].Reveal(),
		Resource:    resource.Reveal(),
		Challenge:   challenge,
	}
	return nil
}

// verifierPattern matches a code verifier: 43 to 128 unreserved characters (RFC 7636, section 4.1).
var verifierPattern = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// RefreshToken is the grant type that rotates a refresh token.
const RefreshToken = "refresh_token"

// refreshToken rotates a refresh token (RFC 6749, section 6).
var refreshToken = grantType{
	name:     RefreshToken,
	required: []string{"refresh_token"},
	optional: []string{"resource", "scope"},
	formOnly: true,
	presents: "refresh_token",
	kind:     grant.Refresh,
	check:    checkRefresh,
}

// checkRefresh also reads scope, which narrows the access token (RFC 6749, section 6). Without a permission in it, it
// is as if it were missing.
func checkRefresh(_ *Engine, x *exchange) error {
	resource := x.request.Parameters["resource"]
	switch {
	case !x.snapshot.Client.Kind.Traits().Refreshes:
		return tokenError("unauthorized_client",
			"This client has no refresh tokens. Send the user to the consent page again.")
	case resource == "":
		return tokenError("invalid_request", "resource is required."+librariesHelp)
	case x.forged:
		return tokenError("invalid_grant", "The refresh token is unknown.")
	}
	x.asked.Terms = grant.CodeTerms{ClientID: x.snapshot.Client.ID, Resource: resource.Reveal()}
	x.asked.Scope = perm.ParseScope(x.request.Parameters["scope"].Reveal()).Without(perm.NewSet(offlineAccess))
	return nil
}
