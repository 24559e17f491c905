package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 5.2 and 8, contract section 3: lifetimes, and the checks of the user at refresh.

func TestLifetimes_AccessTokens(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.Person(t, p.Demo.Users.Owner)
	long, short := p.DemoConfidential().Connect(t, owner), p.DemoConnector().Connect(t, owner)
	for _, c := range []struct {
		name    string
		tokens  harness.Tokens
		seconds int
	}{{"confidential", long, 90 * 24 * 3600}, {"connector", short, 3600}} {
		claims := harness.Decode(t, c.tokens.AccessToken).Claims
		expires, _ := claims["exp"].(float64)
		issued, _ := claims["iat"].(float64)
		wantsSeconds(t, c.name+": exp - iat", int(expires-issued), c.seconds)
		if left := int(time.Until(time.Unix(int64(expires), 0)).Seconds()); left > c.seconds ||
			left < c.tokens.ExpiresIn-30 {
			t.Errorf("%s: the token expires in %d seconds, expires_in is %d", c.name, left, c.tokens.ExpiresIn)
		}
	}
	ends := p.Database.Count(t,
		`select extract(epoch from ends_at - created_at)::int from account.grants where id = $1`,
		harness.GrantOf(t, short.AccessToken))
	wantsSeconds(t, "the connector's grant", ends, 30*24*3600)
}

// "Refreshing never extends the 30 days", and the access token expires with the grant at the latest.
func TestLifetimes_RefreshDoesNotExtendGrant(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	grant := harness.GrantOf(t, tokens.AccessToken)
	for _, left := range []time.Duration{10 * 24 * time.Hour, 2 * time.Hour, 10 * time.Minute} {
		p.Database.EndGrantIn(t, grant, left)
		for range 2 {
			tokens = connector.Refresh(t, tokens.RefreshToken).Tokens(t)
			wantsSeconds(t, "authorization_expires_in", tokens.AuthorizationEnd, int(left.Seconds()))
			wantsSeconds(t, "expires_in", tokens.ExpiresIn, min(3600, int(left.Seconds())))
		}
	}
	p.Database.EndGrantIn(t, grant, -time.Second)
	connector.Refresh(t, tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
}

// In the last seconds of the 30 days a request gets tokens or invalid_grant, never a server error.
func TestLifetimes_LastSecondsOfGrant(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), p.Person(t, ws.Owner)
	wantsEither := func(answer harness.Answer, left time.Duration) {
		t.Helper()
		if answer.Status != http.StatusOK {
			answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			return
		}
		if tokens := answer.Tokens(t); tokens.ExpiresIn < 0 || tokens.ExpiresIn > int(left.Seconds()) {
			t.Errorf("%s before the end: expires_in is %d", left, tokens.ExpiresIn)
		}
	}
	for _, left := range []time.Duration{2 * time.Second, time.Second, time.Millisecond, 0} {
		tokens := connector.Connect(t, owner)
		p.Database.EndGrantIn(t, harness.GrantOf(t, tokens.AccessToken), left)
		wantsEither(connector.Refresh(t, tokens.RefreshToken), left)
		attempt := connector.Begin()
		form := attempt.CodeForm(attempt.Code(t, owner))
		pending := p.Database.Text(
			t,
			`select id::text from account.grants where client_id = $1 and state = 'pending'
						order by created_at desc limit 1`,
			connector.ClientID,
		)
		p.Database.EndGrantIn(t, pending, left)
		wantsEither(attempt.Post(t, form), left)
	}
}

func TestLifetimes_ConfidentialTokenEndsWithGrant(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	tokens := ws.Confidential(t, "", harness.ReadProgrammes).Connect(t, p.Person(t, ws.Owner))
	p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	p.Database.EndGrantIn(t, harness.GrantOf(t, tokens.AccessToken), -time.Second)
	p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	wantsGateway(t, p.As(tokens.AccessToken).Get(t, ws.Clients()), http.StatusForbidden, "Forbidden")
}

// "At exchange and at refresh the user must still be a member …, hold at least one of the granted permissions, and
// (connector) … LLM integration must still be on: else 400 invalid_grant"; "a refusal by those … consumes nothing".
func TestRefresh_RechecksUserWithoutConsuming(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for name, c := range map[string]struct {
		away, back func(*testing.T, harness.TestWorkspace)
	}{
		"membership": {
			func(t *testing.T, o harness.TestWorkspace) { p.Database.Leave(t, o.Workspace, o.Owner) },
			func(t *testing.T, o harness.TestWorkspace) {
				p.Database.Join(t, o.Workspace, o.Owner, harness.Everything()...)
			},
		},
		"permissions": {
			func(t *testing.T, o harness.TestWorkspace) {
				p.Database.Permit(t, o.Workspace, o.Owner, harness.ReadForms, harness.APIAccess)
			},
			func(t *testing.T, o harness.TestWorkspace) {
				p.Database.Permit(t, o.Workspace, o.Owner, harness.Everything()...)
			},
		},
		"LLM integration": {
			func(t *testing.T, o harness.TestWorkspace) { p.Database.SetLLM(t, o.Workspace, false) },
			func(t *testing.T, o harness.TestWorkspace) { p.Database.SetLLM(t, o.Workspace, true) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			connector := ws.Connector(t, harness.ReadProgrammes)
			tokens := connector.Connect(t, p.Person(t, ws.Owner))
			c.away(t, ws)
			for range 3 {
				connector.Refresh(t, tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			}
			p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			c.back(t, ws)
			connector.WantsWorking(t, tokens)
		})
	}
}

// "A permission lost meanwhile is simply without effect (section 6), and back when the user has it back."
func TestRefresh_LostPermissionReturnsWithUser(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	create := func() harness.Answer {
		return p.In(ws.Workspace, tokens.AccessToken).
			JSON(t, http.MethodPost, programmes, map[string]any{"name": "Warm room"})
	}
	create().Wants(t, http.StatusCreated)
	p.Database.Permit(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
	create().WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	tokens = connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	create().WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	p.Database.Permit(t, ws.Workspace, ws.Owner, harness.Everything()...)
	create().Wants(t, http.StatusCreated)
	tokens = connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	if !strings.Contains(tokens.Scope, harness.WriteProgrammes) {
		t.Errorf("the scope is %q after the permission was restored", tokens.Scope)
	}
}
