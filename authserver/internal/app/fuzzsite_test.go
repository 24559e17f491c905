package app_test

import (
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/fuzzkit"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	tokenPath = apitest.TokenPath
	verifier  = apitest.Verifier
)

// A fuzzed is the whole of authserver over real stores, with a user who has every credential that inputs may name. Its
// inputs are sent without a connection.
type fuzzed struct {
	*apitest.Server
	from     fuzzkit.Addresses
	password credential.Secret // its hash, because hashing is slow
	actors   actors
	left     int    // inputs until the actors are replaced
	cookie   string // session cookie of the last sign-in
}

// actors are a workspace with one client of each kind, and a member who holds every permission.
type actors struct {
	user                      workspace.User
	connector, linked, basic  client.Client
	linkedSecret, basicSecret credential.Secret
	service                   apitest.ClientWithSecret
	pat                       credential.Secret
}

func everything() perm.Set { return perm.ForConnectors().Union(perm.NewSet(perm.AccountAPIAccess)) }

// inputsPerActors limits the length of pages that list what a user has created, and keeps each client below the limit
// of refusals.
const inputsPerActors = 200

// underFuzz is the service that the fuzz tests share.
var underFuzz = testkit.Once(func(t testing.TB) *fuzzed {
	s := &fuzzed{Server: apitest.Own(t, func(c *app.Config, _ string) {
		c.AppURL, c.TrustedProxies, c.Passkeys = "http://localhost:8081", fuzzkit.Proxy, true
		c.ClientDomains, c.ClientDocumentCA = "none", ""
		// not called, see paths
		c.UpstreamIssuer, c.UpstreamName = "https://127.0.0.1:1", "Riverside"
		c.UpstreamClientID, c.UpstreamClientSecret = "x", "x"
	})}
	var err error
	s.password, err = session.HashPassword(browsertest.Password, session.LowestCost())
	s.Must(err)
	return s
})

// renew creates new actors after many inputs, or after a change to them.
func (s *fuzzed) renew() {
	if s.left--; s.left > 0 {
		return
	}
	s.left = inputsPerActors
	s.Fixture.WorkspaceID = s.Fixture.Workspace("Riverside Food Bank")
	c := actors{user: workspace.User{Email: "person-" + uuid.NewString() + "@example.org"}, service: s.Service()}
	c.user.ID = s.Fixture.User(c.user.Email)
	s.Fixture.Exec(`update account.users set password_hash = $2 where id = $1`, c.user.ID, s.password.Reveal())
	s.Fixture.Join(s.Fixture.WorkspaceID, c.user.ID, everything()...)
	c.connector = s.Fixture.Connector(apitest.REST, perm.ProgrammesRead, perm.ProgrammesWrite)
	c.linked, c.linkedSecret = s.Fixture.Confidential(perm.ProgrammesRead)
	c.basic, c.basicSecret = s.Fixture.Confidential(perm.ProgrammesRead)
	s.Fixture.Exec(`update account.oauth_clients set token_endpoint_auth_method = 'client_secret_basic'
		where id = $1`, c.basic.ID)
	c.pat = s.Fixture.Token(c.user.ID, everything()...)
	s.actors = c
}

// spoil makes the next input get new actors, because these were changed.
func (s *fuzzed) spoil() { s.left = 0 }

// stock returns the values of the words in inputs.
func (s *fuzzed) stock() fuzzkit.Placeholders {
	basic := func(id uuid.UUID, secret credential.Secret) string {
		return base64.StdEncoding.EncodeToString([]byte(id.String() + ":" + secret.Reveal()))
	}
	return fuzzkit.Placeholders{
		Public: map[string]func() string{
			"tenant":    s.Fixture.WorkspaceID.String,
			"connector": s.actors.connector.ID.String,
			"linked":    s.actors.linked.ID.String,
			"email":     func() string { return s.actors.user.Email },
		},
		Secret: map[string]func() string{
			"secret":     s.actors.linkedSecret.Reveal,
			"basic":      func() string { return basic(s.actors.basic.ID, s.actors.basicSecret) },
			"service":    func() string { return basic(s.actors.service.ID, s.actors.service.Secret) },
			"pat":        s.actors.pat.Reveal,
			"code":       func() string { return s.code(s.actors.connector) },
			"linkedcode": func() string { return s.code(s.actors.linked) },
			"basiccode":  func() string { return s.code(s.actors.basic) },
			"used":       func() string { code := s.code(s.actors.connector); s.exchanged(code); return code },
			"refresh":    func() string { return s.exchanged(s.code(s.actors.connector)).Text("refresh_token") },
			"old":        s.superseded,
			"access":     func() string { return s.exchanged(s.code(s.actors.connector)).Text("access_token") },
			"restaccess": s.restAccess,
			"password":   func() string { return browsertest.Password },
			"session":    s.signIn,
			"key": func() string {
				return s.hiddenIn("/settings/developers?tenant=" + s.Fixture.WorkspaceID.String())
			},
			"ticket": func() string {
				return s.hiddenIn("/oauth/authorize?" + asking(s.actors.connector, fixture.Callback).Encode())
			},
		},
	}
}

// code returns the code of a new consent of the user.
func (s *fuzzed) code(c client.Client) string {
	_, code := s.Consent(c, s.actors.user.ID)
	return code.Reveal()
}

func (s *fuzzed) exchanged(code string) fuzzkit.Answer {
	return s.tokens("application/x-www-form-urlencoded", "grant_type=authorization_code&code="+code+
		"&code_verifier="+verifier+"&redirect_uri="+fixture.Callback+s.ofConnector())
}

// superseded returns a refresh token that was used.
func (s *fuzzed) superseded() string {
	old := s.exchanged(s.code(s.actors.connector)).Text("refresh_token")
	s.tokens("application/x-www-form-urlencoded", "grant_type=refresh_token&refresh_token="+old+s.ofConnector())
	return old
}

func (s *fuzzed) ofConnector() string {
	return "&client_id=" + s.actors.connector.ID.String() + "&resource=" + s.actors.connector.Resource
}

func (s *fuzzed) restAccess() string {
	body := `{"client_id":"` + s.actors.linked.ID.String() +
		`","client_secret":"` + s.actors.linkedSecret.Reveal() +
		`","code":"` + s.code(s.actors.linked) +
		`","redirect_uri":"` + fixture.Callback + `"}`
	return s.tokens("application/json", body).Text("access_token")
}

func (s *fuzzed) tokens(contentType, body string) fuzzkit.Answer {
	r := httptest.NewRequest("POST", tokenPath, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	answer := fuzzkit.Ask(s.Handler, r)
	if answer.Status != http.StatusOK {
		panic(fmt.Sprintf("no tokens: %d %s", answer.Status, answer.Body))
	}
	return answer
}

// signIn signs the user in and returns the session cookie.
func (s *fuzzed) signIn() string {
	recorder := httptest.NewRecorder()
	s.Sessions.Load(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proof := session.Proof{Method: session.Password, PasswordHash: s.password}
		s.Must(s.Sessions.Begin(w, r, s.actors.user, proof, netip.MustParseAddr("192.0.2.1")))
	})).ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
	s.cookie = recorder.Result().Cookies()[0].Value
	return s.cookie
}

// asking returns a valid authorization request of a connector.
func asking(c client.Client, callback string) url.Values {
	return url.Values{
		"response_type":         {"code"},
		"client_id":             {c.ID.String()},
		"redirect_uri":          {callback},
		"state":                 {"s"},
		"resource":              {c.Resource},
		"code_challenge":        {grant.ChallengeOf(verifier)},
		"code_challenge_method": {"S256"},
	}
}

var hidden = regexp.MustCompile(`name="(?:key|ticket)" value="([^"]+)"`)

// hiddenIn returns the key or the ticket of a page, as the last signed-in user gets it. Without it, a form is refused.
func (s *fuzzed) hiddenIn(target string) string {
	r := httptest.NewRequest("GET", target, nil)
	r.Header.Set("Cookie", "almoner="+s.cookie)
	if found := hidden.FindStringSubmatch(fuzzkit.Ask(s.Handler, r).Body); found != nil {
		return html.UnescapeString(found[1])
	}
	return "none"
}

// A routeSeed is a request and the status of its response.
type routeSeed struct {
	method, path, id, query, headers, body string
	status                                 int
}

const (
	asForm      = "Content-Type: application/x-www-form-urlencoded\n"
	asObject    = "Content-Type: application/json\n"
	withSession = "Cookie: almoner=<session>\n"
)

func routeSeeds() []routeSeed {
	return slices.Concat(accountSeeds(), pageSeeds(), settingsSeeds())
}

func accountSeeds() []routeSeed {
	const introspect, revoke = "/v1/account/oauth/introspect", "/v1/account/oauth/revoke"
	const pat = "Authorization: Bearer <pat>\n"
	const register = `{"name":"Donor sync","redirectUris":["https://sync.example.org/callback"],` +
		`"requiredPermissions":["programmes:read:programmes"]}`
	const one = "/v1/account/tenants/<tenant>/oauth-clients/{id}"
	service := asForm + "Authorization: Basic <service>\n"
	return []routeSeed{
		{"POST", introspect, "", "", service, "token=<pat>", 200},
		{"POST", introspect, "", "", service, "token=<access>&token_type_hint=refresh_token", 200},
		{"POST", introspect, "", "", service, "token=<refresh>", 200},
		{"POST", introspect, "", "", service, "token=a.b.c", 200},
		{"POST", introspect, "", "", service, "token=x&token=y", 400},
		{"POST", introspect, "", "", asForm + "Authorization: Basic <basic>\n", "token=<pat>", 401},
		{"POST", introspect, "", "", asForm, "token=<pat>", 401},
		{"POST", introspect, "", "", service + "Authorization: Basic <basic>\n", "token=<pat>", 401},
		{"GET", introspect, "", "token=x", "", "", 405},
		{"POST", revoke, "", "", asForm, "client_id=<connector>&token=<refresh>", 200},
		{"POST", revoke, "", "", asForm, "client_id=<connector>&token=<access>", 200},
		{"POST", revoke, "", "", asObject,
			`{"client_id":"<linked>","client_secret":"<secret>","token":"<refresh>"}`, 200},
		{"POST", revoke, "", "", asObject, `{"client_id":"<linked>","client_secret":"x","token":"<refresh>"}`, 400},
		{"POST", revoke, "", "", asForm + "Authorization: Basic <basic>\n", "token=x&token_type_hint=zz", 200},
		{"OPTIONS", revoke, "", "", "Origin: https://a.example\nAccess-Control-Request-Method: POST\n", "", 204},
		{"POST", clientsOf, "<tenant>", "", pat + asObject, register, 201},
		{"POST", clientsOf, "<tenant>", "", "Authorization: Bearer <restaccess>\n" + asObject, register, 403},
		{"POST", clientsOf, "<tenant>", "", pat + asObject, strings.Replace(register, "{",
			`{"connectorPlatform":"claude","resource":"https://api.example.org/mcp",`, 1), 201},
		{"POST", clientsOf, "<tenant>", "", pat + asObject,
			strings.Replace(register, "https://sync", "http://*", 1), 400},
		{"POST", clientsOf, "<tenant>", "", pat + asObject,
			strings.Replace(register, "Donor sync", `\u0000\ud800`, 1), 400},
		{"POST", clientsOf, "<tenant>", "", pat + asObject, "[", 400},
		{"POST", clientsOf, "x", "", pat + asObject, register, 403},
		{"GET", clientsOf, "<tenant>", "", pat, "", 200},
		{"GET", clientsOf, "<tenant>", "", "", "", 401},
		{"GET", clientsOf, "<tenant>", "", "Authorization: Bearer x\n", "", 403},
		{"GET", one, "<linked>", "", pat, "", 200},
		{"GET", one, "%00", "", pat, "", 404},
		{"DELETE", one, "<linked>", "", pat, "", 204},
		{"POST", one + "/secret", "<linked>", "", pat + asObject, `{"expireOld":true}`, 200},
		{"POST", one + "/secret", "<connector>", "", pat + asObject, `{}`, 400},
		{"GET", "/authorize", "", "client_id=<connector>&state=x", "", "", 302},
		{"GET", "/.well-known/oauth-authorization-server", "", "", "", "", 200},
		{"HEAD", "/v1/account/oauth/jwks", "", "", "", "", 200},
		{"GET", "/.well-known/{id}", "openid-configuration/v1", "", "", "", 200},
		{"GET", "/v1/account/{id}", "x/../oauth/token", "", "", "", 404},
		{"POST", "/register", "", "", asObject, "{}", 404},
		{"POST", "/token", "", "", asForm, "grant_type=refresh_token&client_id=<connector>" +
			"&resource=https://api.example.org/v1&refresh_token=<refresh>", 200},
	}
}

func settingsSeeds() []routeSeed {
	const week = "&days=7&platforms=claude&permissions=programmes:read:programmes&confirm=yes&seen="
	get := func(path, query string, status int) routeSeed {
		return routeSeed{"GET", path, "", query, withSession, "", status}
	}
	post := func(path, body string, status int) routeSeed {
		return routeSeed{"POST", path, "", "", withSession + asForm, "key=<key>&tenant=<tenant>" + body, status}
	}
	return []routeSeed{
		get("/settings/user", "", 200),
		get("/settings/developers", "tenant=<tenant>", 200),
		get("/settings/developers", "tenant=%00", 403),
		get("/settings/developers", "tenant=<tenant>&q=%ff&page=-9", 200),
		get("/settings/developers/new", "tenant=<tenant>", 200),
		get("/settings/developers/replace", "tenant=<tenant>&id=%00", 303),
		get("/settings/applications", "tenant=<tenant>&q=x&page=99999999999999999999", 200),
		get("/settings/applications/new", "tenant=<tenant>", 200),
		get("/settings/applications/secret", "tenant=<tenant>&id=<linked>", 200),
		get("/settings/applications/delete", "tenant=<tenant>&id=<linked>", 200),
		get("/settings/webhooks", "tenant=<tenant>", 200),
		get("/settings/webhooks/new", "tenant=<tenant>", 200),
		get("/settings/webhooks/events", "tenant=<tenant>&id=%00", 303),
		get("/settings/webhooks/delivery", "tenant=<tenant>&id=x&delivery=%ff", 303),
		get("/settings/apps", "", 200),
		get("/settings/connect", "", 200),
		get("/settings/security", "", 200),
		get("/settings/security/sessions", "page=99999999999999999999", 200),
		get("/settings/security/events", "before=x", 200),
		get("/settings/security/tokens", "page=-1", 200),
		get("/settings/welcome", "tenant=%00", 403),
		get("/settings/audit", "tenant=<tenant>&before=x", 200),
		get("/settings/audit.jsonl", "tenant=<tenant>", 200),
		get("/settings/audit.csv", "tenant=<tenant>&person=%25%27%ff&since=x&until=2026-02-30", 200),
		get("/settings/connectors", "tenant=<tenant>&page=99999999999999999999&before=x", 200),
		get("/settings/connectors/log", "tenant=<tenant>&client=<connector>&before=x&person=%25%27%ff&since=x", 200),
		get("/settings/connectors/log.jsonl", "tenant=<tenant>&until=2026-02-30", 200),
		get("/settings/connectors/log.csv", "tenant=<tenant>&request=x&application=%00", 200),
		get("/settings/passkeys", "", 200),
		get("/settings/provider", "", 200),
		{"GET", "/settings/user", "", "", "Cookie: almoner=x; almoner=y\n", "", 303},
		post("/settings/developers/tokens", "&name=CI&days=30&permissions=programmes:read:programmes", 200),
		post("/settings/developers/tokens", "&name=%00%ff&days=99999999999999999999", 400),
		post("/settings/developers/tokens/revoke", "&id=<linked>", 303),
		post("/settings/developers/tokens/replace", "&id=%00", 303),
		post("/settings/developers/apps", "&kind=confidential&name=X&redirect_uris=https://a.example/cb"+
			"&permissions=programmes:read:programmes&method=client_secret_json", 200),
		post("/settings/developers/apps", "&kind=connector&name=&redirect_uris=%00%0ax&platform=x&resource=y", 400),
		post("/settings/developers/apps/secret", "&id=<linked>&expire_old=yes", 200),
		post("/settings/developers/apps/delete", "&id=<linked>", 303),
		post("/settings/apps/disconnect", "&id=<linked>", 303),
		post("/settings/apps/disconnect-all", "&id=%00", 303),
		post("/settings/security/sign-out", "&id=<linked>", 303),
		post("/settings/security/sign-out-others", "", 303),
		post("/settings/security/tokens/revoke", "&id=x", 303),
		post("/settings/security/authenticator/codes.txt", "&codes=x", 303),
		post("/settings/connectors/policy", week+"x", 409),
		post("/settings/connectors/policy", week+workspace.DefaultConnectorPolicy().Digest(), 303),
		post("/settings/connectors/policy", "&days=%ff", 400),
		post("/settings/connectors/disconnect", "&id=<linked>", 303),
		post("/settings/user/name", "&name=%00", 400),
		post("/settings/connectors/llm", "&state=x", 403),
		{"POST", "/settings/connectors/policy", "", "", withSession + asForm, "key=x", 403},
	}
}

func pageSeeds() []routeSeed {
	const ask = "response_type=code&client_id=<connector>&redirect_uri=" + fixture.Callback +
		"&state=s&resource=https://api.example.org/v1" +
		"&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256"
	const sent = `{"id":"AAAA","rawId":"AAAA","type":"public-key","response":{"clientDataJSON":"e30",` +
		`"attestationObject":"oA","authenticatorData":"AA","signature":"AA","userHandle":"AA"}}`
	return []routeSeed{
		{"GET", "/oauth/authorize", "", ask, "", "", 200},
		{"GET", "/oauth/authorize", "", ask + "&scope=programmes:read:programmes%20offline_access", withSession,
			"", 200},
		{"GET", "/oauth/authorize", "", ask + "&scope=x", withSession, "", 303},
		{"GET", "/oauth/authorize", "", ask + "&state=t", withSession, "", 400},
		{"GET", "/oauth/authorize", "", strings.Replace(ask, "S256", "plain", 1), withSession, "", 303},
		{"GET", "/oauth/authorize", "", strings.Replace(ask, "127", "128", 1), "", "", 400},
		{"GET", "/oauth/authorize", "", "client_id=<linked>&redirect_uri=" + fixture.Callback + "&state=%00%ff",
			withSession, "", 200},
		{"POST", "/oauth/authorize", "", "", withSession + asForm, "ticket=<ticket>&decision=approve", 303},
		{"POST", "/oauth/authorize", "", "", withSession + asForm, "ticket=<ticket>&decision=deny", 303},
		{"POST", "/oauth/authorize", "", "", withSession + asForm, "ticket=<ticket>&decision=approve&access=read", 303},
		{"POST", "/oauth/authorize", "", "", withSession + asForm, "ticket=x&decision=approve", 403},
		{"POST", "/oauth/authorize", "", "", withSession + asForm + "Origin: https://elsewhere.example\n",
			"ticket=<ticket>&decision=approve", 403},
		{"POST", "/oauth/authorize/workspace", "", "", withSession + asForm,
			"ticket=<ticket>&decision=choose&workspace=<tenant>", 403},
		{"GET", "/login", "", "return=/settings/apps%3fx", "", "", 200},
		{"GET", "/login", "", "return=//elsewhere.example", withSession, "", 303},
		{"POST", "/login", "", "", asForm, "email=<email>&password=<password>&return=/settings/apps", 303},
		{"POST", "/login", "", "", asForm, "email=<email>&password=x", 400},
		{"POST", "/login", "", "", asForm, "email=a@b&email=c@d&password=x", 400},
		{"POST", "/login", "", "", asForm, "email=%00@%ff&password=x", 400},
		{"POST", "/logout", "", "", withSession + asForm, "return=/login", 303},
		{"POST", "/login/again", "", "", withSession + asForm, "password=<password>&return=/settings/developers", 303},
		{"GET", "/login/again", "", "return=/settings/developers", withSession, "", 200},
		{"POST", "/login/code", "", "", asForm, "ticket=x&code=123456", 400},
		{"POST", "/login/passkey/options", "", "", asForm, "", 200},
		{"POST", "/login/passkey", "", "", asForm, "credential=" + sent, 400},
		{"POST", "/login/again/passkey", "", "", withSession + asForm, "credential=" + sent, 303},
		{"POST", "/settings/passkeys", "", "", withSession + asForm, "name=Laptop&credential=" + sent, 400},
		{"GET", "/login/upstream/callback", "", "code=x&state=y&iss=https://127.0.0.1:1", withSession, "", 400},
		{"HEAD", "/login/upstream/callback", "", "state=y", "", "", 405},
		{"POST", "/login/upstream/confirm", "", "", withSession + asForm, "key=x", 303},
		{"GET", "/static/{id}", "site.css", "", "", "", 200},
		{"GET", "/{id}", "../etc/passwd", "", "", "", 404},
	}
}
