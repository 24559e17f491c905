package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"math/big"
	"net/http"
	"regexp"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 3 and 5, contract sections 2 and 6: where each kind of credential is accepted and where it is not.

func TestCredentials_AllKindsListProgrammes(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.Person(t, p.Demo.Users.Owner)
	for name, token := range map[string]string{
		"personal access token": p.Demo.Tokens.Reader,
		"confidential":          p.DemoConfidential().Connect(t, owner).AccessToken,
		"connector":             p.DemoConnector().Connect(t, owner).AccessToken,
	} {
		t.Run(name, func(t *testing.T) {
			p.In(p.Demo.Workspaces.Main, token).Get(t, programmes).Wants(t, http.StatusOK)
			p.In(p.Demo.Workspaces.Empty, token).Get(t, programmes).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
		})
	}
}

// Contract, section 2: the format of credentials and the claims of an access token.
func TestCredentials_HaveContractFormat(t *testing.T) {
	t.Parallel()
	p := enter(t)
	app, owner := p.DemoConfidential(), p.Person(t, p.Demo.Users.Owner)
	attempt := p.DemoConnector().Begin()
	code := attempt.Code(t, owner)
	short := attempt.Post(t, attempt.CodeForm(code)).Tokens(t)
	long := app.Connect(t, owner)
	for name, c := range map[string]struct{ text, pattern string }{
		"personal access token": {p.Demo.Tokens.Owner, `^alm_pat_[0-9A-Za-z]{30,}[0-9A-Za-z]{6}$`},
		"client secret":         {app.ClientSecret, `^alm_cs_[0-9A-Za-z]{43,}[0-9A-Za-z]{6}$`},
		"code":                  {code, `^alm_ac_[0-9A-Za-z_-]{43,}$`},
		"refresh token":         {short.RefreshToken, `^alm_rt_[0-9A-Za-z_-]{43,}$`},
	} {
		if !regexp.MustCompile(c.pattern).MatchString(c.text) {
			t.Errorf("a %s of %d characters does not match %s", name, len(c.text), c.pattern)
		}
	}
	for _, c := range []struct {
		tokens harness.Tokens
		client string
		scope  string
	}{{long, app.ClientID, harness.ReadProgrammes}, {short, attempt.ClientID, attempt.Scope}} {
		wantsClaims(t, p, c.tokens, c.client, c.scope)
	}
}

func wantsClaims(t *testing.T, p *harness.Product, tokens harness.Tokens, client, scope string) {
	t.Helper()
	token := harness.Decode(t, tokens.AccessToken)
	if token.Header["typ"] != "at+jwt" || token.Header["alg"] != "ES256" {
		t.Errorf("typ %v, alg %v", token.Header["typ"], token.Header["alg"])
	}
	for name, want := range map[string]any{
		"iss": p.BaseURL, "sub": p.Demo.Users.Owner.ID, "aud": p.BaseURL + "/v1", "client_id": client, "scope": scope,
		"tenant_id": p.Demo.Workspaces.Main.ID,
	} {
		if token.Claims[name] != want {
			t.Errorf("claim %s is %v, want %v", name, token.Claims[name], want)
		}
	}
	for _, name := range []string{"exp", "iat", "jti", "grant_id"} {
		if token.Claims[name] == nil {
			t.Errorf("claim %s is missing", name)
		}
	}
	if len(token.Claims) != 10 {
		t.Errorf("%d claims, want the ten of the contract", len(token.Claims))
	}
	if tokens.Scope != scope {
		t.Errorf("the response's scope is %q", tokens.Scope)
	}
	for _, key := range p.API().Get(t, "/v1/account/oauth/jwks").Object(t)["keys"].([]any) {
		if jwk := key.(map[string]any); jwk["kid"] == token.Header["kid"] {
			if !signedBy(t, token, jwk) {
				t.Error("the signature does not match the key of the token's kid")
			}
			return
		}
	}
	t.Error("JWKS does not have the token's kid")
}

// wantsBearerRejected checks that both services reject a bearer token, each with its own error.
func wantsBearerRejected(t *testing.T, p *harness.Product, ws harness.TestWorkspace, bearer string) {
	t.Helper()
	p.In(ws.Workspace, bearer).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	wantsGateway(t, p.As(bearer).Get(t, ws.Clients()), http.StatusForbidden, "Forbidden")
}

// A token "made for another resource" gets 401 from the REST API and 403 {"message"} from the account routes.
func TestCredentials_TokenForOtherResourceIsRejected(t *testing.T) {
	p, ws := inWorkspace(t)
	mcp := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes)
	tokens := mcp.Connect(t, p.Person(t, ws.Owner))
	if aud := harness.Decode(t, tokens.AccessToken).Claims["aud"]; aud != p.BaseURL+"/mcp" {
		t.Errorf("aud is %v", aud)
	}
	wantsBearerRejected(t, p, ws, tokens.AccessToken)
	wantsBearerRejected(t, p, ws, mcp.Refresh(t, tokens.RefreshToken).Tokens(t).AccessToken)
}

// "Credentials issued through connector consent are restricted further by the permissions the user consented to." (spec
// 1)
func TestCredentials_LimitedToConsentedPermissions(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	attempt := ws.Connector(t, harness.ReadForms, harness.ReadProgrammes).Begin()
	attempt.Query = change(attempt.Query, "scope", harness.ReadForms)
	forms := attempt.Post(t, attempt.CodeForm(attempt.Code(t, owner))).Tokens(t)
	p.In(ws.Workspace, forms.AccessToken).Get(t, programmes).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	narrow := p.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadForms)
	p.In(ws.Workspace, narrow).Get(t, programmes).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	p.In(ws.Workspace, ws.Token).Get(t, programmes).Wants(t, http.StatusOK)
}

// signedBy reports whether a key of JWKS made the signature (ES256, RFC 7518, section 3.4).
func signedBy(t testing.TB, j harness.JWT, key map[string]any) bool {
	t.Helper()
	if len(j.Signature) != 64 {
		return false
	}
	point := append(append([]byte{4}, coordinate(t, key, "x")...), coordinate(t, key, "y")...)
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		t.Fatal("a key of JWKS is not a point of P-256")
	}
	digest := sha256.Sum256([]byte(j.Signed))
	return ecdsa.Verify(public, digest[:], new(big.Int).SetBytes(j.Signature[:32]),
		new(big.Int).SetBytes(j.Signature[32:]))
}

func coordinate(t testing.TB, key map[string]any, name string) []byte {
	t.Helper()
	text, _ := key[name].(string)
	content, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(content) != 32 {
		t.Fatalf("%s of a key of JWKS is not 32 bytes", name)
	}
	return content
}
