package attack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Access tokens with wrong content. Those that the trusted key signs can be refused only by the check of their claims;
// the others try to choose the key or the algorithm themselves (RFC 8725).

// A claimSet is the claims of an access token, each value as JSON.
type claimSet map[string]string

func claimsOf(t *testing.T, accessToken string) claimSet {
	t.Helper()
	out := claimSet{}
	for name, value := range harness.Decode(t, accessToken).Claims {
		content, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if number, isNumber := value.(float64); isNumber {
			content = fmt.Appendf(nil, "%.0f", number)
		}
		out[name] = string(content)
	}
	return out
}

// with returns a copy of the claims with one member changed. A value of "" removes the member.
func (s claimSet) with(name, value string) claimSet {
	out := maps.Clone(s)
	out[name] = value
	if value == "" {
		delete(out, name)
	}
	return out
}

func (s claimSet) text() string {
	var members []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		members = append(members, name, s[name])
	}
	return object(members...)
}

func quoted(text string) string { return fmt.Sprintf("%q", text) }

// wrongClaims returns sets of claims with one mistake each.
func wrongClaims(p *harness.Product, s claimSet, other claimSet) map[string]string {
	now := time.Now()
	is := func(name, value string) string { return s.with(name, value).text() }
	moment := func(d time.Duration) string { return fmt.Sprint(now.Add(d).Unix()) }
	return map[string]string{
		"foreign iss":                is("iss", quoted("https://evil.example")),
		"iss with a slash":           is("iss", quoted(p.BaseURL+"/")),
		"no iss":                     is("iss", ""),
		"iss in capitals":            is("iss", quoted(strings.ToUpper(p.BaseURL))),
		"iss, two":                   is("iss", `["`+p.BaseURL+`"]`),
		"aud of the client":          is("aud", s["client_id"]),
		"aud the issuer":             is("aud", quoted(p.BaseURL)),
		"aud of the parent path":     is("aud", quoted(p.BaseURL+"/")),
		"aud with a slash":           is("aud", quoted(p.BaseURL+"/v1/")),
		"aud of a subpath":           is("aud", quoted(p.BaseURL+"/v1/programmes")),
		"no aud":                     is("aud", ""),
		"aud, two":                   is("aud", `["`+p.BaseURL+`/v1","https://evil.example"]`),
		"aud, one of many":           is("aud", `["https://evil.example","`+p.BaseURL+`/v1"]`),
		"aud empty":                  is("aud", `""`),
		"aud null":                   is("aud", "null"),
		"exp in the past":            is("exp", moment(-time.Minute)),
		"no exp":                     is("exp", ""),
		"exp null":                   is("exp", "null"),
		"exp text":                   is("exp", quoted(moment(time.Hour))),
		"exp fraction":               is("exp", moment(time.Hour)+".5"),
		"exp negative":               is("exp", "-1"),
		"exp endless":                is("exp", "1e300"),
		"iat in the future":          is("iat", moment(time.Hour)),
		"no iat":                     is("iat", ""),
		"iat text":                   is("iat", quoted(moment(0))),
		"sub of another user":        is("sub", other["sub"]),
		"no sub":                     is("sub", ""),
		"sub unknown":                is("sub", quoted(uuid.NewString())),
		"sub number":                 is("sub", "1"),
		"client of another grant":    is("client_id", other["client_id"]),
		"no client":                  is("client_id", ""),
		"workspace of another grant": is("tenant_id", other["tenant_id"]),
		"no workspace":               is("tenant_id", ""),
		"grant of another user":      is("grant_id", other["grant_id"]),
		"grant unknown":              is("grant_id", quoted(uuid.NewString())),
		"no grant":                   is("grant_id", ""),
		"no jti":                     is("jti", ""),
		"exp twice": strings.TrimSuffix(s.with("exp", "").text(),
			"}") + `,"exp":1,"exp":` + s["exp"] + "}",
		"sub twice":     strings.TrimSuffix(s.text(), "}") + `,"sub":` + other["sub"] + "}",
		"Sub too":       strings.TrimSuffix(s.text(), "}") + `,"Sub":` + other["sub"] + "}",
		"not JSON":      "nonsense",
		"a list":        "[" + s.text() + "]",
		"more after it": s.text() + "{}",
		"empty":         "{}",
		"nothing":       "",
	}
}

// wrongHeaders returns headers with one mistake each.
func wrongHeaders(kid string) map[string]string {
	k := quoted(kid)
	return map[string]string{
		"typ JWT":         object("alg", `"ES256"`, "typ", `"JWT"`, "kid", k),
		"no typ":          object("alg", `"ES256"`, "kid", k),
		"typ id token":    object("alg", `"ES256"`, "typ", `"id_token"`, "kid", k),
		"typ logout":      object("alg", `"ES256"`, "typ", `"logout+jwt"`, "kid", k),
		"typ list":        object("alg", `"ES256"`, "typ", `["at+jwt"]`, "kid", k),
		"alg none":        object("alg", `"none"`, "typ", `"at+jwt"`, "kid", k),
		"alg None":        object("alg", `"None"`, "typ", `"at+jwt"`, "kid", k),
		"no alg":          object("typ", `"at+jwt"`, "kid", k),
		"alg HS256":       object("alg", `"HS256"`, "typ", `"at+jwt"`, "kid", k),
		"alg ES384":       object("alg", `"ES384"`, "typ", `"at+jwt"`, "kid", k),
		"alg small":       object("alg", `"es256"`, "typ", `"at+jwt"`, "kid", k),
		"alg twice":       `{"alg":"none","alg":"ES256","typ":"at+jwt","kid":` + k + `}`,
		"Alg too":         `{"Alg":"none","alg":"ES256","typ":"at+jwt","kid":` + k + `}`,
		"no kid":          object("alg", `"ES256"`, "typ", `"at+jwt"`),
		"kid empty":       object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", `""`),
		"kid in capitals": object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", quoted(strings.ToUpper(kid))),
		"kid a path":      object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", `"../../../../dev/null"`),
		"kid SQL":         object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", `"' union select 'x"`),
		"kid number":      object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", "1"),
		"kid twice":       `{"alg":"ES256","typ":"at+jwt","kid":"other","kid":` + k + `}`,
		"critical":        object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", k, "crit", `["x"]`, "x", "1"),
		"critical, empty": object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", k, "crit", "[]"),
		"not encoded":     object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", k, "b64", "false", "crit", `["b64"]`),
		"not JSON":        "nonsense",
	}
}

// foreign returns tokens that bring their own key or misuse ours.
func foreign(t *testing.T, s signer, mine signer, claims string) map[string]string {
	t.Helper()
	key, err := json.Marshal(mine.jwk(t))
	if err != nil {
		t.Fatal(err)
	}
	kid := quoted(s.kid)
	out := map[string]string{
		"my key under your kid": mine.sign(t, object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", kid), claims),
		"my key in jwk": mine.sign(t, object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", kid, "jwk", string(key)),
			claims),
		"my key at jku": mine.sign(t,
			object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", kid, "jku", `"http://127.0.0.1:9/jwks"`), claims),
		"my key at x5u": mine.sign(t,
			object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", kid, "x5u", `"http://127.0.0.1:9/x"`), claims),
	}
	public := s.jwk(t)
	content, _ := json.Marshal(public)
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	point, _ := s.key.PublicKey.Bytes()
	for name, secret := range map[string][]byte{
		"JWK":     content,
		"DER":     der,
		"PEM":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
		"point":   point,
		"nothing": {},
	} {
		for _, alg := range []string{"HS256", "ES256"} {
			signed := encode(object("alg", quoted(alg), "typ", `"at+jwt"`, "kid", kid)) + "." + encode(claims)
			mac := hmac.New(sha256.New, secret)
			mac.Write([]byte(signed))
			out["HMAC of the public key's "+name+", alg "+alg] = signed + "." + base64.RawURLEncoding.EncodeToString(
				mac.Sum(nil))
		}
	}
	header := encode(object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", kid)) + "." + encode(claims)
	out["r and s of nought"] = header + "." + encode(strings.Repeat("\x00", 64)) // CVE-2022-21449
	digest := sha256.Sum256([]byte(header))
	if asn, err := ecdsa.SignASN1(rand.Reader, s.key, digest[:]); err == nil {
		out["signature in DER"] = header + "." + base64.RawURLEncoding.EncodeToString(asn)
	}
	return out
}

// misspelt returns spellings of a good token that a lenient parser accepts.
func misspelt(good string) map[string]string {
	parts := strings.Split(good, ".")
	return map[string]string{
		"padded":              good + "=",
		"a fourth part":       good + ".",
		"without a signature": parts[0] + "." + parts[1] + ".",
		"two parts":           parts[0] + "." + parts[1],
		"standard base64":     strings.NewReplacer("-", "+", "_", "/").Replace(good) + "+",
		"JSON, flattened": `{"protected":"` + parts[0] + `","payload":"` + parts[1] +
			`","signature":"` + parts[2] + `"}`,
		"JSON, general": `{"payload":"` + parts[1] + `","signatures":[{"protected":"` + parts[0] +
			`","signature":"` + parts[2] + `"}]}`,
		"signature of two": good + parts[2],
	}
}

func TestAccessToken_ForgeryIsRefusedEverywhere(t *testing.T) {
	p := newProduct(t)
	ws, elsewhere := p.NewWorkspace(t), p.NewWorkspace(t)
	p.Database.Join(t, elsewhere.Workspace, ws.Owner, harness.Everything()...)
	app := ws.Confidential(t, "", harness.APIAccess, harness.ReadProgrammes)
	token := app.Connect(t, p.Person(t, ws.Owner)).AccessToken
	other := elsewhere.Confidential(t, "", harness.ReadProgrammes).Connect(t, p.Person(t, elsewhere.Owner)).AccessToken
	mcp := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes).Connect(t, p.Person(t, ws.Owner)).AccessToken
	s, mine := trustedSigner(t, p), newSigner(t, "mine")
	good, header := claimsOf(t, token), object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", quoted(s.kid))

	// The control token is signed by the trusted key and correct, so it is accepted. Every token below differs from it
	// in one thing.
	control := s.sign(t, header, good.text())
	accepted := func() bool { return p.In(ws.Workspace, control).Get(t, harness.ListPath).Status == http.StatusOK }
	// The resource API reads the keys twice a minute.
	await.True(t, "the services accept the trusted key", accepted)
	p.As(control).Get(t, ws.Clients()).Wants(t, http.StatusOK)
	wantsActive(t, p, control, true)

	tokens := map[string]string{}
	for name, claims := range wrongClaims(p, good, claimsOf(t, other)) {
		tokens["claims: "+name] = s.sign(t, header, claims)
	}
	for name, wrong := range wrongHeaders(s.kid) {
		tokens["header: "+name] = s.sign(t, wrong, good.text())
	}
	for name, wrong := range foreign(t, s, mine, good.text()) {
		tokens["key: "+name] = wrong
	}
	for name, wrong := range misspelt(control) {
		tokens["spelling: "+name] = wrong
	}
	tokens["made for the other resource"] = s.sign(t, header, good.with("aud", quoted(p.BaseURL+"/mcp")).text())
	tokens["of the other resource's grant"] = s.sign(t, header,
		claimsOf(t, mcp).with("aud", quoted(p.BaseURL+"/v1")).text())
	if len(tokens) < 80 {
		t.Fatalf("only %d forgeries", len(tokens))
	}
	for name, forged := range tokens {
		seen.AddAll(forged)
		gets(t, p.In(ws.Workspace, forged).Get(t, harness.ListPath), name+" is accepted by the API",
			http.StatusUnauthorized)
		if answer := p.As(forged).Get(t, ws.Clients()); answer.Status != http.StatusForbidden ||
			!strings.Contains(string(answer.Body), `"message":"Forbidden"`) {
			t.Errorf("%s is accepted by the account routes:\n%s", name, answer)
		}
		if strings.Contains(name, "the other resource") {
			continue // the token may be valid there
		}
		gets(t, p.As(forged).JSON(t, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`),
			name+" is accepted by the MCP endpoint", http.StatusUnauthorized)
		wantsActive(t, p, forged, false)
	}
	p.In(ws.Workspace, token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
	p.In(ws.Workspace, control).Get(t, harness.ListPath).Wants(t, http.StatusOK)
}

func wantsActive(t *testing.T, p *harness.Product, token string, active bool) {
	t.Helper()
	if got := p.DemoService().Introspect(t, token).Wants(t, http.StatusOK).Object(t)["active"]; got != active {
		t.Errorf("introspection returns active: %v, want %v", got, active)
	}
}

func TestAccessToken_ClaimedScopeGrantsNothing(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	token := ws.Confidential(t, "", harness.ReadProgrammes).Connect(t, p.Person(t, ws.Owner)).AccessToken
	s := trustedSigner(t, p)
	wide := s.sign(t, object("alg", `"ES256"`, "typ", `"at+jwt"`, "kid", quoted(s.kid)),
		claimsOf(t, token).with("scope", quoted(strings.Join(harness.Everything(), " "))).text())
	seen.AddAll(wide)
	gets(t, p.In(ws.Workspace, wide).JSON(t, http.MethodPost, harness.ListPath, map[string]any{"name": "Mine now"}),
		"a token claimed a permission beyond its grant", http.StatusUnauthorized, http.StatusForbidden)
	p.As(wide).Get(t, ws.Clients()).Wants(t, http.StatusForbidden)
	n := p.Database.Count(t, `select count(*) from resource.programmes where tenant_id = $1`, ws.Workspace.ID)
	if n != 0 {
		t.Errorf("%d programmes were created", n)
	}
}

// A signer holds a key that the product trusts: the database owner stored its public half among the retired keys. A
// token that it signs is wrong only in its claims or header, so only the check of those can refuse it.
type signer struct {
	kid string
	key *ecdsa.PrivateKey
}

func newSigner(t *testing.T, kid string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{kid, key}
}

func (s signer) jwk(t *testing.T) map[string]any {
	t.Helper()
	point, err := s.key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return map[string]any{
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": s.kid, "x": encode(point[1:33]),
		"y": encode(point[33:]),
	}
}

// sign returns a compact JWS (RFC 7515) of the two texts, which need not be valid.
func (s signer) sign(t *testing.T, header, claims string) string {
	t.Helper()
	signed := encode(header) + "." + encode(claims)
	digest := sha256.Sum256([]byte(signed))
	r, v, err := ecdsa.Sign(rand.Reader, s.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), v.FillBytes(make([]byte, 32))...)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// object returns a JSON object with the members in the given order: name, value, name, value. Values are raw JSON, and
// a name may occur twice.
func object(members ...string) string {
	var out strings.Builder
	for i := 0; i < len(members); i += 2 {
		if i > 0 {
			out.WriteString(",")
		}
		name, _ := json.Marshal(members[i])
		out.WriteString(string(name) + ":" + members[i+1])
	}
	return "{" + out.String() + "}"
}

var (
	signing sync.Mutex
	trusted *signer
)

// believed returns the stored key after both services have read it.
func trustedSigner(t *testing.T, p *harness.Product) signer {
	t.Helper()
	signing.Lock()
	defer signing.Unlock()
	if trusted != nil {
		return *trusted
	}
	s := newSigner(t, "believed-by-"+rand.Text()[:8])
	public, err := json.Marshal(s.jwk(t))
	if err != nil {
		t.Fatal(err)
	}
	p.Database.Exec(t, `insert into account.signing_keys (kid, public_jwk, private_sealed, state, retired_at)
				values ($1, $2, '\x00', 'retired', now())`, s.kid, public)
	published := func() bool { return strings.Contains(string(p.API().Get(t, "/v1/account/oauth/jwks").Body), s.kid) }
	await.True(t, "the trusted key is published", published)
	trusted = &s
	return s
}
