package e2e

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The go-sdk's client against the product.

// A expiringSource is a token source whose access token can be marked as expired, so that the library refreshes.
type expiringSource struct {
	mu      sync.Mutex
	config  *oauth2.Config
	ctx     context.Context
	token   *oauth2.Token
	replays []string // every refresh token so far
}

func (f *expiringSource) Token() (*oauth2.Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	token, err := f.config.TokenSource(f.ctx, f.token).Token()
	if err != nil {
		return nil, err
	}
	if f.token.RefreshToken != token.RefreshToken || len(f.replays) == 0 {
		f.replays = append(f.replays, token.RefreshToken)
	}
	f.token = token
	return token, nil
}

func (f *expiringSource) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	expired := *f.token
	expired.Expiry = time.Now().Add(-time.Minute)
	f.token = &expired
}

var errDenied = errors.New("the user declined")

// A sdkUser is a user of the go-sdk's client at a real browser.
type sdkUser struct {
	t         *testing.T
	connector harness.Connector
	decide    func(address string) url.Values // nil: the user is away
	source    *expiringSource
	consents  int
}

func (w *sdkUser) handler(issuer string) auth.OAuthHandler {
	w.t.Helper()
	config := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL:         w.connector.RedirectURI,
		RequestRefreshToken: true,
		AuthorizationCodeFetcher: func(
			_ context.Context, asked *auth.AuthorizationArgs,
		) (*auth.AuthorizationResult, error) {
			if w.decide == nil {
				return nil, errDenied
			}
			w.consents++
			values := w.decide(asked.URL)
			code, state, iss := values.Get("code"), values.Get("state"), values.Get("iss")
			return &auth.AuthorizationResult{Code: code, State: state, Iss: iss}, nil
		},
		// The SDK's own source sends no resource on refresh, which the MCP specification requires of clients.
		NewTokenSource: func(
			_ context.Context, config *oauth2.Config, token *oauth2.Token,
		) (oauth2.TokenSource, error) {
			ctx := withResource(context.Background(), w.connector)
			w.source = &expiringSource{config: config, ctx: ctx, token: token}
			return w.source, nil
		},
	}
	if strings.HasPrefix(w.connector.ClientID, "https://") {
		config.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: w.connector.ClientID}
	} else {
		config.PreregisteredClient = &oauthex.ClientCredentials{ClientID: w.connector.ClientID, Issuer: issuer}
	}
	handler, err := auth.NewAuthorizationCodeHandler(config)
	must(w.t, err)
	return handler
}

// The client knows only the URL: 401, discovery, consent in a real browser, token, tools, refresh, replay, a second
// consent, revocation.
func TestMCP_GoSDKClient(t *testing.T) {
	p, ws := inWorkspace(t)
	landing := newLanding(t)
	connector := connectorAt(t, p, ws, landing, "/mcp", harness.ReadProgrammes)
	for _, name := range []string{"Lunch club", "Debt advice", "Warm rooms"} {
		p.In(ws.Workspace, ws.Token).JSON(t, http.MethodPost, programmes, map[string]any{"name": name}).
			Wants(t, http.StatusCreated)
	}

	browser := newBrowser(t, p, harness.Laptop)
	w := &sdkUser{t: t, connector: connector}
	w.decide = func(address string) url.Values {
		browser.Open(address)
		if w.consents == 1 {
			browser.SignIn(ws.Owner.Email, ws.Owner.Password)
		}
		browser.ClickAndSee(approveButton, "#landed")
		return landing.wait(t)
	}
	session := w.connect(p)
	w.callEveryTool(session, ws)

	w.source.expire()
	w.callEveryTool(session, ws)
	if len(w.source.replays) != 2 || w.consents != 1 {
		t.Fatalf("%d refresh tokens, %d consents", len(w.source.replays), w.consents)
	}

	// Presenting the superseded token revokes the grant. The client is challenged and starts a new authorization.
	connector.Refresh(t, w.source.replays[0]).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	wantsChallenge(t, p, rpc(t, mcp(p, w.source.token.AccessToken), "tools/list", nil), `error="invalid_token"`)
	w.callEveryTool(session, ws)
	if w.consents != 2 {
		t.Errorf("%d consents", w.consents)
	}

	// The token is revoked, and the user is away.
	w.decide = nil
	ended := w.source.token
	connector.Revoke(t, ended.RefreshToken).Wants(t, http.StatusOK)
	if _, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "whoami"}); !errors.Is(err, errDenied) {
		t.Errorf("after revocation: %v", err)
	}
	wantsChallenge(t, p, rpc(t, mcp(p, ended.AccessToken), "tools/list", nil), `error="invalid_token"`)
}

// connect returns a session of the client with the MCP endpoint.
func (w *sdkUser) connect(p *harness.Product) *sdk.ClientSession {
	w.t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "e2e", Version: "1"}, nil).
		Connect(w.t.Context(), &sdk.StreamableClientTransport{
			Endpoint:     p.BaseURL + "/mcp",
			OAuthHandler: w.handler(p.BaseURL),
		}, nil)
	mustRedacted(w.t, err)
	w.t.Cleanup(func() { _ = session.Close() })
	return session
}

// callEveryTool calls every tool.
func (w *sdkUser) callEveryTool(session *sdk.ClientSession, ws harness.TestWorkspace) {
	w.t.Helper()
	var names []string
	for tool, err := range session.Tools(w.t.Context(), nil) {
		if err != nil {
			w.t.Fatal(redactError(err))
		}
		names = append(names, tool.Name)
	}
	if !slices.Equal(sorted(names), []string{"get_programme", "list_programmes", "whoami"}) {
		w.t.Fatalf("the tools are %v", names)
	}
	call := func(name string, arguments map[string]any) map[string]any {
		w.t.Helper()
		result, err := session.CallTool(w.t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
		if err != nil {
			w.t.Fatalf("%s: %s", name, redactError(err))
		}
		content, _ := result.StructuredContent.(map[string]any)
		if result.IsError || content == nil {
			w.t.Fatalf("%s failed", name)
		}
		return content
	}
	who := call("whoami", nil)
	workspace, _ := who["workspace"].(map[string]any)
	connection, _ := who["connection"].(map[string]any)
	if workspace["name"] != ws.Workspace.Name || connection["clientId"] != w.connector.ClientID ||
		len(texts(who["permissions"])) != 1 {
		w.t.Errorf("whoami: %v", who)
	}
	var seen []string
	listed, _ := call("list_programmes", nil)["data"].([]any)
	for _, one := range listed {
		record, _ := one.(map[string]any)
		seen = append(seen, record["name"].(string))
		if read := call("get_programme", map[string]any{"id": record["id"]}); read["name"] != record["name"] {
			w.t.Errorf("get_programme: %v", read)
		}
	}
	if strings.Join(seen, ", ") != "Warm rooms, Debt advice, Lunch club" {
		w.t.Errorf("the programmes are %v", seen)
	}
}

func TestMCP_OAuth2Library(t *testing.T) {
	p := inParallel(t)
	connector := p.ConnectorOf(p.Demo.Clients.MCP)
	config, ctx := oauth2Connector(p, connector), withResource(t.Context(), connector)
	verifier := oauth2.GenerateVerifier()
	options := []oauth2.AuthCodeOption{
		oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("resource", connector.Resource),
	}
	for name, value := range map[string]string{ // unknown parameters are ignored
		"prompt": "consent", "nonce": "n", "audience": "x", "request_id": "1", "Scope": "x", "response_mode": "query",
	} {
		options = append(options, oauth2.SetAuthURLParam(name, value))
	}
	address := config.AuthCodeURL("state", options...)
	code := p.Person(t, p.Demo.Users.Owner).Arrive(t, address).Approve(t)
	token, err := config.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	mustRedacted(t, err)
	source := &expiringSource{config: config, ctx: ctx, token: token}
	for range 3 {
		current, err := source.Token()
		mustRedacted(t, err)
		page, _, failed := callTool(t, mcp(p, current.AccessToken), "list_programmes", map[string]any{"limit": 200})
		if data, _ := page["data"].([]any); failed || len(data) != 200 {
			t.Errorf("%d programmes", len(data))
		}
		source.expire()
	}
	if len(source.replays) != 3 {
		t.Errorf("%d refresh tokens", len(source.replays))
	}
}
