package engine

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// The test records the calls that fosite makes in each flow, in order. A new version of fosite that makes other calls
// fails it.
func TestFosite_CallsMatchGolden(t *testing.T) {
	t.Parallel()
	e, connector, code := goldenEngine(t)
	calls := &callLog{}
	e.watch(calls)
	calls.flow("authorize")
	query := url.Values{
		"client_id":             {connector.ID.String()},
		"redirect_uri":          {fixture.Callback},
		"response_type":         {"code"},
		"state":                 {"s"},
		"resource":              {connector.Resource},
		"code_challenge":        {goldenChallenge},
		"code_challenge_method": {"S256"},
	}
	app, err := e.Identify(t.Context(), query.Encode())
	must(t, err)
	_, err = e.ParseAuthorization(t.Context(), app)
	must(t, err)
	calls.flow("exchange")
	tokens, err := e.Token(t.Context(), TokenRequest{
		Dialect:   Form,
		GrantType: "authorization_code",
		ClientID:  connector.ID.String(),
		Parameters: map[string]credential.Secret{
			"code":          code,
			"redirect_uri":  fixture.Callback,
			"code_verifier": goldenVerifier,
			"resource":      credential.Secret(connector.Resource),
		},
	})
	must(t, err)
	calls.flow("refresh")
	refresh := TokenRequest{
		Dialect:   Form,
		GrantType: RefreshToken,
		ClientID:  connector.ID.String(),
		Parameters: map[string]credential.Secret{
			"refresh_token": tokens.Refresh,
			"resource":      credential.Secret(connector.Resource),
		},
	}
	_, err = e.Token(t.Context(), refresh)
	must(t, err)
	calls.flow("replay")
	if _, err := e.Token(t.Context(), refresh); err == nil {
		t.Fatal("a replay succeeded")
	}
	golden, err := os.ReadFile("testdata/fosite.golden")
	must(t, err)
	if got := calls.String(); got != string(golden) {
		t.Errorf("the calls of fosite differ from testdata/fosite.golden:\n%s", got)
	}
}

const (
	goldenVerifier  = credential.Secret("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") // RFC 7636, appendix B
	goldenChallenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// goldenEngine returns an Engine over real stores, a connector and one of its codes.
func goldenEngine(t *testing.T) (*Engine, client.Client, credential.Secret) {
	t.Helper()
	fx := fixture.New(t)
	database := postgres.Only(credential.Secret(fx.Database.Authserver))
	store, err := postgres.Open(t.Context(), database, testkit.StoreWait)
	must(t, err)
	t.Cleanup(store.Close)
	rdb, err := redis.Connect(credential.Fixed(credential.Secret(testkit.NewRedis(t).URL)), testkit.StoreWait)
	must(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	codec, err := grant.NewTokenCodec(seal.NewKeys(key))
	must(t, err)
	ring, err := keyring.New(store, seal.NewKeys(key))
	must(t, err)
	must(t, ring.Load(t.Context()))
	grants := grant.NewService(store, redis.NewGrants(rdb), codec, slog.New(slog.DiscardHandler))
	const issuer = "https://api.example.org"
	e := New(Deps{
		Issuer:       issuer,
		RESTResource: issuer + "/v1",
		Clients:      store,
		Grants:       grants,
		Signer:       ring,
	})
	connector := fx.Connector(issuer+"/mcp", perm.ProgrammesRead)
	code, err := grants.Open(t.Context(), grant.Grant{
		ID:          uuid.New(),
		Kind:        connector.Kind,
		ClientID:    connector.ID,
		UserID:      fx.Member(perm.ProgrammesRead),
		WorkspaceID: fx.WorkspaceID,
		Permissions: connector.Required,
		Resource:    connector.Resource,
		Ends:        time.Now().Add(time.Hour),
	}, grant.CodeTerms{
		ClientID:    connector.ID,
		RedirectURI: fixture.Callback,
		Resource:    connector.Resource,
		Challenge:   goldenChallenge,
	})
	must(t, err)
	return e, connector, code
}

type callLog struct{ strings.Builder }

func (r *callLog) flow(name string) { r.WriteString(name + "\n") }
func (r *callLog) add(what string)  { r.WriteString("  " + what + "\n") }

// watch logs each call that fosite makes, and forwards it.
func (e *Engine) watch(r *callLog) {
	storage := e.storage
	e.storage = func(c client.Client) fosite.Storage { return watchedStorage{storage(c), r} }
	e.fosite.Store = watchedStorage{oneClient{}, r}
	config := e.fosite.Config.(*fosite.Config)
	authenticate := config.ClientAuthenticationStrategy
	config.ClientAuthenticationStrategy = func(
		ctx context.Context,
		request *http.Request,
		form url.Values,
	) (fosite.Client, error) {
		r.add("authenticate the client")
		return authenticate(ctx, request, form)
	}
	config.TokenEndpointHandlers = fosite.TokenEndpointHandlers{
		watchedHandler{"code", config.TokenEndpointHandlers[0], r},
		watchedHandler{"refresh", config.TokenEndpointHandlers[1], r},
	}
	e.Signer = watchedSigner{e.Signer, r}
}

type watchedStorage struct {
	fosite.Storage
	*callLog
}

func (w watchedStorage) GetClient(ctx context.Context, id string) (fosite.Client, error) {
	w.add("GetClient")
	return w.Storage.GetClient(ctx, id)
}

func (w watchedStorage) ClientAssertionJWTValid(ctx context.Context, id string) error {
	w.add("ClientAssertionJWTValid")
	return w.Storage.ClientAssertionJWTValid(ctx, id)
}

func (w watchedStorage) SetClientAssertionJWT(ctx context.Context, id string, at time.Time) error {
	w.add("SetClientAssertionJWT")
	return w.Storage.SetClientAssertionJWT(ctx, id, at)
}

type watchedHandler struct {
	name string
	fosite.TokenEndpointHandler
	*callLog
}

func (w watchedHandler) CanHandleTokenEndpointRequest(ctx context.Context, r fosite.AccessRequester) bool {
	can := w.TokenEndpointHandler.CanHandleTokenEndpointRequest(ctx, r)
	if can {
		w.add(w.name + ": can handle")
	}
	return can
}

func (w watchedHandler) HandleTokenEndpointRequest(ctx context.Context, r fosite.AccessRequester) error {
	w.add(w.name + ": handle")
	return w.TokenEndpointHandler.HandleTokenEndpointRequest(ctx, r)
}

func (w watchedHandler) PopulateTokenEndpointResponse(
	ctx context.Context,
	r fosite.AccessRequester,
	response fosite.AccessResponder,
) error {
	w.add(w.name + ": respond")
	return w.TokenEndpointHandler.PopulateTokenEndpointResponse(ctx, r, response)
}

type watchedSigner struct {
	Signer
	*callLog
}

func (w watchedSigner) Current(ctx context.Context, keyIDs ...string) (accesstoken.SigningKey, error) {
	if len(keyIDs) == 0 {
		w.add("the current key")
	}
	return w.Signer.Current(ctx, keyIDs...)
}
