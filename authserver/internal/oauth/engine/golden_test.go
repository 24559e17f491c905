package engine

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// The test records the calls that fosite makes in each flow, in order. A new version of fosite that makes other calls
// fails it.
func TestFosite_CallsMatchGolden(t *testing.T) {
	b := newTestEnv(t)
	_, code := b.consent(b.app)
	calls := &callLog{}
	b.watch(calls)
	calls.flow("authorize")
	_, err := b.ask(b.query(b.app))
	testkit.Must(t, err)
	calls.flow("exchange")
	tokens := b.mustToken("exchange", b.exchangeOf(b.app, code))
	calls.flow("refresh")
	b.mustToken("refresh", refreshOf(b.app, tokens.Refresh))
	calls.flow("replay")
	b.refused("replay", refreshOf(b.app, tokens.Refresh), "invalid_grant")
	golden, err := os.ReadFile("testdata/fosite.golden")
	testkit.Must(t, err)
	if got := calls.String(); got != string(golden) {
		t.Errorf("the calls of fosite differ from testdata/fosite.golden:\n%s", got)
	}
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
