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
		out[name] = string(mustJSON(t, value))
		if number, isNumber := value.(float64); isNumber {
			out[name] = fmt.Sprintf("%.0f", number)
		}
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

// wrongClaims returns sets of claims with one mistake each. "" removes the claim.
func wrongClaims(p *harness.Product, s claimSet, other claimSet) map[string]string {
	moment := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }
	unknown, open := quoted(uuid.NewString()), strings.TrimSuffix(s.text(), "}")
	out := map[string]string{
		"exp twice":     strings.TrimSuffix(s.with("exp", "").text(), "}") + `,"exp":1,"exp":` + s["exp"] + "}",
		"sub twice":     open + `,"sub":` + other["sub"] + "}",
		"Sub too":       open + `,"Sub":` + other["sub"] + "}",
		"not JSON":      "nonsense",
		"a list":        "[" + s.text() + "]",
		"more after it": s.text() + "{}",
		"empty":         "{}",
		"nothing":       "",
	}
	for claim, values := range map[string][]string{
		"iss": {
			`"https://evil.example"`, quoted(p.BaseURL + "/"), quoted(strings.ToUpper(p.BaseURL)),
			`["` + p.BaseURL + `"]`, "",
		},
		"aud": {
			s["client_id"], quoted(p.BaseURL), quoted(p.BaseURL + "/"), quoted(p.BaseURL + "/v1/"),
			quoted(p.BaseURL + "/v1/programmes"), `["` + p.BaseURL + `/v1","https://evil.example"]`,
			`["https://evil.example","` + p.BaseURL + `/v1"]`, `""`, "null", "",
		},
		"exp": {
			moment(-time.Minute), quoted(moment(time.Hour)), moment(time.Hour) + ".5", "-1", "1e300", "null", "",
		},
		"iat":       {moment(time.Hour), quoted(moment(0)), ""},
		"sub":       {other["sub"], unknown, "1", ""},
		"client_id": {other["client_id"], ""},
		"tenant_id": {other["tenant_id"], ""},
		"grant_id":  {other["grant_id"], unknown, ""},
		"jti":       {""},
	} {
		for _, value := range values {
			out[claim+" "+value] = s.with(claim, value).text()
		}
	}
	return out
}

// headerFor returns the header of a good token.
func headerFor(kid string) claimSet {
	return claimSet{"alg": `"ES256"`, "typ": `"at+jwt"`, "kid": quoted(kid)}
}

// wrongHeaders returns headers with one mistake each. "" removes the member.
func wrongHeaders(kid string) map[string]string {
	good := headerFor(kid)
	open := strings.TrimSuffix(good.with("alg", "").with("kid", "").text(), "}") + `,"kid":`
	out := map[string]string{
		"alg twice":       open + good["kid"] + `,"alg":"none","alg":"ES256"}`,
		"Alg too":         open + good["kid"] + `,"Alg":"none","alg":"ES256"}`,
		"kid twice":       open + `"other","kid":` + good["kid"] + `,"alg":"ES256"}`,
		"critical":        good.with("crit", `["x"]`).with("x", "1").text(),
		"critical, empty": good.with("crit", "[]").text(),
		"not encoded":     good.with("b64", "false").with("crit", `["b64"]`).text(),
		"not JSON":        "nonsense",
	}
	for member, values := range map[string][]string{
		"typ": {`"JWT"`, `"id_token"`, `"logout+jwt"`, `["at+jwt"]`, ""},
		"alg": {`"none"`, `"None"`, `"HS256"`, `"ES384"`, `"es256"`, ""},
		"kid": {`""`, quoted(strings.ToUpper(kid)), `"../../../../dev/null"`, `"' union select 'x"`, "1", ""},
	} {
		for _, value := range values {
			out[member+" "+value] = good.with(member, value).text()
		}
	}
	return out
}

// foreign returns tokens that bring their own key or misuse ours.
func foreign(t *testing.T, s signer, mine signer, claims string) map[string]string {
	t.Helper()
	header := headerFor(s.kid)
	out := map[string]string{
		"my key under your kid": mine.sign(t, header.text(), claims),
		"my key in jwk":         mine.sign(t, header.with("jwk", string(mustJSON(t, mine.jwk(t)))).text(), claims),
		"my key at jku":         mine.sign(t, header.with("jku", `"http://127.0.0.1:9/jwks"`).text(), claims),
		"my key at x5u":         mine.sign(t, header.with("x5u", `"http://127.0.0.1:9/x"`).text(), claims),
	}
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	must(t, err)
	point, err := s.key.PublicKey.Bytes()
	must(t, err)
	for name, secret := range map[string][]byte{
		"JWK":     mustJSON(t, s.jwk(t)),
		"DER":     der,
		"PEM":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
		"point":   point,
		"nothing": {},
	} {
		for _, alg := range []string{`"HS256"`, `"ES256"`} {
			out["HMAC of the public key's "+name+", alg "+alg] = hashed(secret, header.with("alg", alg).text(), claims)
		}
	}
	signed := encode(header.text()) + "." + encode(claims)
	out["r and s of nought"] = signed + "." + encode(strings.Repeat("\x00", 64)) // CVE-2022-21449
	digest := sha256.Sum256([]byte(signed))
	asn, err := ecdsa.SignASN1(rand.Reader, s.key, digest[:])
	must(t, err)
	out["signature in DER"] = signed + "." + encode(string(asn))
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
		"JSON, flattened": object("protected", quoted(parts[0]), "payload", quoted(parts[1]), "signature",
			quoted(parts[2])),
		"JSON, general": object("payload", quoted(parts[1]), "signatures",
			"["+object("protected", quoted(parts[0]), "signature", quoted(parts[2]))+"]"),
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
	good, header := claimsOf(t, token), headerFor(s.kid).text()

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
	wide := s.sign(t, headerFor(s.kid).text(),
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
	must(t, err)
	return signer{kid, key}
}

func (s signer) jwk(t *testing.T) map[string]any {
	t.Helper()
	point, err := s.key.PublicKey.Bytes()
	must(t, err)
	return map[string]any{
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": s.kid, "x": encode(string(point[1:33])),
		"y": encode(string(point[33:])),
	}
}

// sign returns a compact JWS (RFC 7515) of the two texts, which need not be valid.
func (s signer) sign(t *testing.T, header, claims string) string {
	t.Helper()
	signed := encode(header) + "." + encode(claims)
	digest := sha256.Sum256([]byte(signed))
	r, v, err := ecdsa.Sign(rand.Reader, s.key, digest[:])
	must(t, err)
	return signed + "." + encode(string(r.FillBytes(make([]byte, 32)))+string(v.FillBytes(make([]byte, 32))))
}

// hashed returns a compact JWS whose signature is the HMAC of the two texts.
func hashed(secret []byte, header, claims string) string {
	signed := encode(header) + "." + encode(claims)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(signed))
	return signed + "." + encode(string(mac.Sum(nil)))
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

// trustedSigner returns the stored key after both services have read it.
func trustedSigner(t *testing.T, p *harness.Product) signer {
	t.Helper()
	signing.Lock()
	defer signing.Unlock()
	if trusted != nil {
		return *trusted
	}
	s := newSigner(t, "believed-by-"+rand.Text()[:8])
	p.Database.Exec(t, `insert into account.signing_keys (kid, public_jwk, private_sealed, state, retired_at)
				values ($1, $2, '\x00', 'retired', now())`, s.kid, mustJSON(t, s.jwk(t)))
	published := func() bool { return strings.Contains(string(p.API().Get(t, "/v1/account/oauth/jwks").Body), s.kid) }
	await.True(t, "the trusted key is published", published)
	trusted = &s
	return s
}

func mustJSON(t *testing.T, value any) []byte {
	t.Helper()
	content, err := json.Marshal(value)
	must(t, err)
	return content
}
