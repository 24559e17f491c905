package e2e

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 4.2 and 5.2, contract, section 5: registered applications.

func TestRegister_WorkspaceIsFromURL(t *testing.T) {
	p := inParallel(t)
	ws, other := p.NewWorkspace(t), p.NewWorkspace(t)
	caller := p.As(ws.Token).With("X-Tenant-Id", other.Workspace.ID)
	caller.JSON(t, http.MethodPost, ws.Clients(), harness.ConfidentialBody(harness.ReadProgrammes)).
		Wants(t, http.StatusCreated)
	if list := p.As(other.Token).Get(t, other.Clients()).Object(t)["data"].([]any); len(list) != 0 {
		t.Error("the tenant header had an effect on an account route")
	}
}

// A header that the caller's Connection names ends at the gateway: the request goes on without it, and is refused.
func TestGateway_DropsHeadersOfConnection(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	api.With("Connection", "Authorization").Get(t, programmes).
		WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	api.With("Connection", "close, X-Tenant-Id").Get(t, programmes).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	account := p.As(ws.Token).With("Connection", "Authorization").Get(t, ws.Clients())
	wantsGateway(t, account, http.StatusUnauthorized, "Unauthorized")
	api.With("Connection", "keep-alive").Get(t, programmes).Wants(t, http.StatusOK)
}

// "Registering an application does not by itself authorise access to user data." (spec 5.2) Nor does a service, which
// only an administrator's command creates, have access to anything but introspection (contract, section 5).
func TestRegistered_AloneAuthorizesNothing(t *testing.T) {
	p, ws := inWorkspace(t)
	for name, c := range map[string]demo.Client{
		"application": ws.Confidential(t, "", harness.ReadProgrammes).Client, "service": p.DemoService().Client,
	} {
		t.Run(name, func(t *testing.T) {
			for _, bearer := range []string{c.ClientSecret, c.ClientID, c.ClientID + ":" + c.ClientSecret} {
				p.In(ws.Workspace, bearer).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
			}
			basic := p.API().With("Authorization", harness.Basic(c.ClientID, c.ClientSecret))
			wantsGateway(t, basic.Get(t, ws.Clients()), http.StatusUnauthorized, "Unauthorized")
			for _, grant := range []string{"client_credentials", "authorization_code", "refresh_token"} {
				form := url.Values{"grant_type": {grant}, "code": {"x"}, "redirect_uri": {"https://x.example/"}}
				form.Set("refresh_token", "x")
				if answer := basic.Form(t, harness.TokenPath, form); answer.Status != http.StatusBadRequest &&
					answer.Status != http.StatusUnauthorized {
					t.Errorf("at the token endpoint:\n%s", answer)
				}
			}
		})
	}
}

// Each write of the account API can be repeated with its Idempotency-Key: it takes effect once (contract, section 6).
func TestRepeat_AccountWritesTakeEffectOnce(t *testing.T) {
	p, ws := inWorkspace(t)
	api, tenant, permissions := p.As(ws.Token), "/v1/account/tenants/"+ws.Workspace.ID, []string{harness.ReadProgrammes}
	client := keyed(t, api, http.MethodPost, ws.Clients(), harness.ConfidentialBody(permissions...), http.StatusCreated)
	one := ws.Clients() + "/" + client.Object(t)["clientId"].(string)
	keyed(t, api, http.MethodPost, one+"/secret", map[string]any{}, http.StatusOK)
	deleted(t, api, one, http.StatusNoContent)
	sam := map[string]any{"email": "sam@example.org", "permissions": permissions}
	invitation := keyed(t, api, http.MethodPost, tenant+"/invitations", sam, http.StatusCreated).Object(t)
	deleted(t, api, tenant+"/invitations/"+invitation["id"].(string), http.StatusNoContent)
	member := tenant + "/members/" + ws.Member(t, harness.ReadProgrammes).ID
	keyed(t, api, http.MethodPatch, member, map[string]any{"permissions": permissions}, http.StatusOK)
	deleted(t, api, member, http.StatusNoContent)
	held := ws.Connector(t, permissions...).Connect(t, p.Person(t, ws.Owner))
	connection := tenant + "/connections/" + harness.GrantOf(t, held.AccessToken)
	keyed(t, api, http.MethodPatch, connection, map[string]any{"permissions": permissions}, http.StatusOK)
	deleted(t, api, connection, http.StatusNoContent)
	second := p.Database.Token(t, ws.Workspace, ws.Owner, permissions...)
	for _, one := range listedTokens(t, p, ws) {
		if slices.Equal(one.Permissions, permissions) {
			deleted(t, api, tenant+"/tokens/"+one.ID, http.StatusNoContent)
		}
	}
	p.In(ws.Workspace, second).Get(t, programmes).Wants(t, http.StatusUnauthorized)
	policy := map[string]any{"permissions": permissions, "platforms": []string{"claude"}, "days": 7}
	keyed(t, api.With("If-Match", "*"), http.MethodPut, tenant+"/connector-policy", policy, http.StatusOK)
	api.With("If-Match", "x").Get(t, tenant+"/connector-policy").Wants(t, http.StatusBadRequest)
	for _, list := range []string{
		"/oauth-clients", "/members", "/invitations", "/connections", "/tokens", "/audit-events", "/usage",
	} {
		api.Get(t, tenant+list+"?cursor=x").Wants(t, http.StatusBadRequest)
		api.Get(t, tenant+list+"?limit=1").Wants(t, http.StatusOK)
	}
}

// "read at each request, never from a cache that can be stale": a change affects the next request.
func TestAccess_ReadOnEveryRequest(t *testing.T) {
	p, ws := inWorkspace(t)
	owner, w := p.Person(t, ws.Owner), p.Database
	apis := []harness.API{
		p.In(ws.Workspace, ws.Token),
		p.In(ws.Workspace, ws.Confidential(t, "", harness.ReadProgrammes).Connect(t, owner).AccessToken),
		p.In(ws.Workspace, ws.Connector(t, harness.ReadProgrammes).Connect(t, owner).AccessToken),
	}
	all := func(status int, code string) {
		t.Helper()
		for _, api := range apis {
			if answer := api.Get(t, programmes); status == http.StatusOK {
				answer.Wants(t, status)
			} else {
				answer.WantsNested(t, status, code)
			}
		}
	}
	for range 2 {
		all(http.StatusOK, "")
		w.Permit(t, ws.Workspace, ws.Owner, harness.ReadForms)
		all(http.StatusForbidden, "FORBIDDEN")
		w.Permit(t, ws.Workspace, ws.Owner, harness.Everything()...)
		all(http.StatusOK, "")
		w.Leave(t, ws.Workspace, ws.Owner)
		all(http.StatusForbidden, "FORBIDDEN")
		w.Join(t, ws.Workspace, ws.Owner, harness.Everything()...)
		all(http.StatusOK, "")
		w.SetModule(t, ws.Workspace, false, true)
		all(http.StatusForbidden, "MODULE_NOT_ENABLED")
		w.SetModule(t, ws.Workspace, true, false)
		all(http.StatusServiceUnavailable, "TENANT_NOT_PROVISIONED")
		w.SetModule(t, ws.Workspace, true, true)
	}
}

// A client that presents the same dead token again and again is throttled. This does not affect the other users of
// the client, callers who guess tokens, or the end of the grant. Guesses are throttled too, which
// authserver/internal/endpoint/protocol/token tests: it takes 6,000.
func TestRateLimit_ThrottlesOnlyDeadToken(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	owner := p.Person(t, ws.Owner)
	dead := connector.Connect(t, owner)
	alive := connector.Connect(t, p.Person(t, ws.Member(t, harness.ReadProgrammes)))
	connector.Revoke(t, dead.RefreshToken).Wants(t, http.StatusOK)
	for _, path := range []string{harness.TokenPath, "/token"} {
		var throttled atomic.Bool // by the first 429: alone, a slow caller stays below the limit
		harness.Concurrently(4, func(int) (answer harness.Answer) {
			for sent := 0; sent < 1200 && !throttled.Load(); sent++ {
				answer = p.API().Form(t, path, connector.RefreshForm(dead.RefreshToken))
				if answer.Status == http.StatusTooManyRequests {
					answer.WantsRetryAfter(t).WantsFlat(t, http.StatusTooManyRequests, "rate_limited")
					throttled.Store(true)
				} else {
					answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
				}
			}
			return answer
		})
		if !throttled.Load() {
			t.Errorf("%s: no 429 for 4,800 requests with one dead token", path)
		}
		alive = connector.WantsWorking(t, alive)
		connector.Refresh(t, "alm_rt_forged").WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
	connector.WantsWorking(t, connector.Connect(t, owner))
}

// TestBounds_HeadersReportRemainingConcurrency checks the headers for 64 concurrent requests per credential and
// service, and for two searches. The tests that unreachable names show that more are rejected.
func TestBounds_HeadersReportRemainingConcurrency(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	for _, path := range []string{programmes, programmes + "?q=shelter", "/v1/engage/forms", ws.Clients()} {
		answer := api.Get(t, path).Wants(t, http.StatusOK)
		policy, left := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit")
		if !strings.Contains(policy, `"requests-in-flight";q=64;qu="concurrent-requests"`) ||
			!strings.Contains(left, `"requests-in-flight";r=63`) {
			t.Errorf("%s: %s, %s", path, policy, left)
		}
		searches := strings.Contains(policy, `"searches-in-flight";q=2;`) &&
			strings.Contains(left, `"searches-in-flight";r=1`)
		if searches != strings.Contains(path, "?q=") {
			t.Errorf("%s: %s, %s", path, policy, left)
		}
	}
}

// Spec 2.1, 3 and 5.2, contract section 7: personal access tokens, created and revoked in Settings → Developers.

func developersURL(p *harness.Product, o harness.TestWorkspace) string {
	return p.AppURL + "/settings/developers?tenant=" + o.Workspace.ID
}
