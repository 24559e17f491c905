package engine

import (
	"regexp"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// authorizationCode redeems the code of a consent (RFC 6749, section 4.1.3).
var authorizationCode = grantType{
	name:     "authorization_code",
	required: []string{"code", "redirect_uri"},
	optional: []string{"code_verifier", "resource"},
	presents: "code",
	kind:     grant.Code,
	mayUse:   func(client.Traits) bool { return true },
	check:    checkCode,
	terms:    codeTerms,
}

func checkCode(x *exchange) error {
	traits := x.snapshot.Client.Kind.Traits()
	switch {
	case traits.ResourceNeeded && x.request.Parameters["resource"] == "":
		return tokenError("invalid_request", "resource is required."+librariesHelp)
	case traits.PKCERequired && x.request.Parameters["code_verifier"] == "":
		return tokenError("invalid_request", "code_verifier is required."+librariesHelp)
	case x.forged:
		return tokenError("invalid_grant", "The authorization code is unknown.")
	}
	return nil
}

// A code verifier has 43 to 128 unreserved characters (RFC 7636, section 4.1).
var verifierPattern = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// codeTerms returns what the request says about its code.
func codeTerms(e *Engine, x *exchange) grant.CodeTerms {
	resource := x.request.Parameters["resource"].Reveal()
	if resource == "" && x.snapshot.Client.Kind == client.Confidential {
		resource = e.RESTResource
	}
	verifier := x.request.Parameters["code_verifier"]
	challenge := grant.ChallengeOf(verifier)
	if verifier != "" && !verifierPattern.MatchString(verifier.Reveal()) {
		challenge = "malformed" // matches no challenge, and counts as a wrong attempt
	}
	return grant.CodeTerms{
		ClientID:    x.snapshot.Client.ID,
		RedirectURI: x.request.Parameters["redirect_uri"].Reveal(),
		Resource:    resource,
		Challenge:   challenge,
	}
}
