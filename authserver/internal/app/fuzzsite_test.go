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
			"ticket": func() string { return s.hiddenIn("/oauth/authorize?" + s.asking().Encode()) },
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

// asking returns a valid authorization request of the connector.
func (s *fuzzed) asking() url.Values {
	return url.Values{
		"response_type":         {"code"},
		"client_id":             {s.actors.connector.ID.String()},
		"redirect_uri":          {fixture.Callback},
		"state":                 {"s"},
		"resource":              {s.actors.connector.Resource},
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
