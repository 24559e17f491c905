package engine

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Contract, section 3: a client of one of the two standard methods may use either of them, or JSON. One of the spec's
// own method uses JSON alone, and is told so only if its secret is right.
func TestToken_ClientSecretInEachWay(t *testing.T) {
	b := newTestEnv(t)
	_, foreign := b.consent(b.app) // an authentic code that no request here may redeem
	service, serviceSecret := b.service()
	for _, method := range []client.AuthMethod{client.SecretJSON, client.SecretPost, client.SecretBasic} {
		c, secret := b.fixture.Confidential(perm.ProgrammesRead)
		b.fixture.Exec(`update account.oauth_clients set token_endpoint_auth_method = $2 where id = $1`, c.ID, method)
		standard := method != client.SecretJSON
		for _, way := range []struct {
			name    string
			dialect Dialect
			basic   bool
			allowed bool
		}{{"JSON", JSON, false, true}, {"form", Form, false, standard}, {"Basic", Form, true, standard}} {
			for _, presented := range []credential.Secret{secret, serviceSecret, ""} {
				for _, code := range []credential.Secret{foreign, "alm_ac_forged"} {
					r := b.exchangeOf(c, code)
					r.Dialect, r.Basic, r.ClientSecret = way.dialect, way.basic, presented
					right := presented == secret
					what := string(method) + ", " + way.name + ", " + map[bool]string{true: "right"}[right]
					_, err := b.Authenticate(t.Context(), r)
					if right && way.allowed {
						b.refused(what, r, "invalid_grant")
						testkit.Must(t, err)
						continue
					}
					refused := b.refused(what, r, "invalid_client")
					alike := b.wantRefusal(what, err, "invalid_client")
					hinted := strings.Contains(refused.Description, "registered for client_secret_json")
					if hinted != right || refused.Challenge != (way.basic && standard) || *alike != *refused {
						t.Errorf("%s: %+v, and to another endpoint %+v", what, refused, alike)
					}
				}
			}
		}
	}
	unknown := b.exchangeOf(b.linked, "alm_ac_x")
	unknown.Dialect, unknown.Basic, unknown.ClientID = Form, true, uuid.NewString()
	if !b.refused("an unknown client with Basic", unknown, "invalid_client").Challenge {
		t.Error("an unknown client with Basic got no challenge")
	}
	r := b.exchangeOf(service, "alm_ac_x")
	b.refused("a service with another's secret", r, "invalid_client")
	r.ClientSecret = ""
	b.refused("a service without a secret", r, "invalid_client")
	r.ClientSecret = serviceSecret
	b.refused("a service", r, "unauthorized_client")
	connector := b.exchangeOf(b.app, "alm_ac_x")
	connector.Basic = true
	b.refused("Basic from a connector", connector, "invalid_request")
}

func TestAuthenticate_RefusesAsTokenDoes(t *testing.T) {
	b := newTestEnv(t)
	for what, c := range map[string]struct {
		request TokenRequest
		code    string
	}{
		"another scheme": {TokenRequest{OtherAuth: true, ClientID: b.linked.PublicID()}, "invalid_request"},
		"no client":      {TokenRequest{ClientSecret: b.secret}, "invalid_request"},
		"no UUID":        {TokenRequest{ClientID: "app", ClientSecret: b.secret}, "invalid_client"},
		"unknown":        {TokenRequest{ClientID: uuid.NewString(), ClientSecret: b.secret}, "invalid_client"},
		"without secret": {TokenRequest{ClientID: b.linked.PublicID()}, "invalid_client"},
	} {
		_, err := b.Authenticate(t.Context(), c.request)
		b.wantRefusal(what, err, c.code)
	}
	for _, c := range []client.Client{b.app, b.linked} {
		found, err := b.Authenticate(t.Context(), TokenRequest{
			Dialect:      map[client.Kind]Dialect{client.Connector: Form}[c.Kind],
			ClientID:     c.PublicID(),
			ClientSecret: map[client.Kind]credential.Secret{client.Confidential: b.secret}[c.Kind],
		})
		if err != nil || found.ID != c.ID {
			t.Errorf("%s: %v %v", c.Kind, found.ID, err)
		}
	}
	for what, r := range map[string]TokenRequest{
		"a scheme":     {OtherAuth: true},
		"Basic":        {Basic: true},
		"a client":     {ClientID: "x"},
		"a secret":     {ClientSecret: "x"},
		"an assertion": {Assertion: "x"},
	} {
		if !r.NamesClient() {
			t.Errorf("a request with %s names no client", what)
		}
	}
	if (TokenRequest{GrantType: "x", AssertionType: "x"}).NamesClient() {
		t.Error("a request without credentials names a client")
	}
}

// A public client that sent a valid request before is decided without a snapshot, unless its last request about the
// grant was refused or it sends more than a public client needs.
func TestToken_KnownPublicClientIsDecidedDirectly(t *testing.T) {
	b := newTestEnv(t)
	held := b.connect(b.app)
	refresh := func(what string, direct bool, changes ...func(*TokenRequest)) {
		t.Helper()
		r := refreshOf(b.app, held.Refresh)
		for _, change := range changes {
			change(&r)
		}
		held = b.mustToken(what, r)
		if b.last.direct != direct {
			t.Errorf("%s: direct is %t", what, b.last.direct)
		}
	}
	refresh("known from its exchange", true)
	refresh("with a secret", false, func(r *TokenRequest) { r.ClientSecret = "x" })
	refresh("with an assertion", false, func(r *TokenRequest) { r.Assertion = "x" })
	refresh("known", true)
	b.refused("another resource", refreshOf(b.app, held.Refresh).with(parameters{"resource": mcp}), "invalid_target")
	refresh("after a refusal", false)
	refresh("after a success", true)
	b.Engine = New(b.Deps) // as another process has it
	b.Observe(b.remember)
	refresh("to another process", false)
	b.connect(b.linked)
	b.connect(b.linked)
	if b.last.direct {
		t.Error("a confidential client was decided directly")
	}
	known := b.document(documentHost, nil)
	held = b.connect(known)
	b.mustToken("a client with a document", refreshOf(known, held.Refresh))
	if !b.last.direct {
		t.Error("a known client with a document was not decided directly")
	}
}

// The data of a known client may be outdated: the decision checks the client, and the refusal says why.
func TestToken_KnownClientIsCheckedAgain(t *testing.T) {
	b := newTestEnv(t)
	held := b.connect(b.app)
	b.fixture.Exec(`update account.oauth_clients set deleted_at = now() where id = $1`, b.app.ID)
	refresh := refreshOf(b.app, held.Refresh)
	b.refused("deleted", refresh, "invalid_client")
	if b.known.Contains(b.app.ID) {
		t.Error("a deleted client is remembered")
	}
	testkit.Must(t, b.Grants.Revoke(t.Context(), held.Grant, grant.ClientDeleted, "operator"))
	stranger := refresh
	stranger.ClientID = uuid.NewString()
	for r, words := range map[*TokenRequest]string{&refresh: "deleted", &stranger: "The client is unknown"} {
		b.refused(words, *r, "invalid_client", words)
	}
}

// A client with a document has no other client_id than its address, and only while its host is served.
func TestToken_ClientWithDocumentIsItsAddress(t *testing.T) {
	b := newTestEnv(t)
	known := b.document(documentHost, nil)
	held := b.connect(known)
	for range 2 { // known, and read
		refresh := refreshOf(known, held.Refresh)
		refresh.ClientID = known.ID.String()
		b.refused("its identifier", refresh, "invalid_client")
		_, err := b.Authenticate(t.Context(), refresh)
		b.wantRefusal("its identifier, to another endpoint", err, "invalid_client")
		b.shown("its identifier, at the authorization endpoint",
			strings.Replace(b.query(known), "client_id=", "client_id="+known.ID.String()+"&x=", 1))
		b.known.Purge()
	}
	elsewhere := b.document("elsewhere.example", nil)
	b.refused("of a host that is not served", b.exchangeOf(elsewhere, b.codeOf(elsewhere)), "invalid_client")
	b.shown("of a host that is not served", b.query(elsewhere))
	b.refused("and garbage", b.exchangeOf(elsewhere, "x"), "invalid_client")
	for _, resource := range []string{rest, mcp} {
		if request, err := b.ask(b.query(known, "resource", resource)); err != nil || request.Resource != resource {
			t.Errorf("%s: %v %v", resource, request.Resource, err)
		}
	}
	b.redirected("another resource", b.query(known, "resource", issuer), "invalid_target", "s")
}

// RFC 7523. A client whose document has keys signs an assertion for each request, and may leave out its client_id.
func TestToken_ClientWithKeysSigns(t *testing.T) {
	b := newTestEnv(t)
	c, sign := b.signing()
	held := b.mustToken("exchange", sign(b.exchangeOf(c, b.codeOf(c))))
	if unnamed := sign(refreshOf(c, held.Refresh)); b.last.direct || b.known.Contains(c.ID) {
		t.Error("a client that signs was decided directly")
	} else {
		unnamed.ClientID = ""
		held = b.mustToken("without client_id", unnamed)
	}
	used := sign(refreshOf(c, held.Refresh))
	for what, r := range map[string]struct {
		change func(*TokenRequest)
		words  string
	}{
		"no assertion":   {func(r *TokenRequest) { r.Assertion = "" }, "must authenticate with client_assertion"},
		"no type":        {func(r *TokenRequest) { r.AssertionType = "" }, "must authenticate with client_assertion"},
		"another type":   {func(r *TokenRequest) { r.AssertionType = "x" }, "must authenticate with client_assertion"},
		"no JWT":         {func(r *TokenRequest) { r.Assertion = "x" }, "must be a JWT"},
		"another client": {func(r *TokenRequest) { r.ClientID = b.app.PublicID() }, ""},
	} {
		bad := sign(refreshOf(c, held.Refresh))
		r.change(&bad)
		if what == "another client" {
			b.refused(what, bad, "invalid_grant") // for which an assertion is an unknown parameter
			continue
		}
		b.refused(what, bad, "invalid_client", r.words)
	}
	unnamed := used
	unnamed.Dialect, unnamed.ClientID = JSON, ""
	b.refused("JSON without client_id", unnamed, "invalid_request")
	b.mustToken("first use", used)
	b.refused("second use", used, "invalid_client", "already used")
	found, err := b.Authenticate(t.Context(), sign(TokenRequest{Dialect: Form}))
	if err != nil || found.ID != c.ID {
		t.Errorf("at another endpoint: %v %v", found.ID, err)
	}
}
