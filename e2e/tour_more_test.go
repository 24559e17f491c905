package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v2/jwa"
	"github.com/lestrrat-go/jwx/v2/jwk"
	"github.com/lestrrat-go/jwx/v2/jws"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
)

const onWebsite = "a form on a website"

// longPages opens lists of more than one page, pages with a very long name, and Connected apps with several approvals
// and with ended ones.
func longPages(i *inspector, p *harness.Product, ws harness.TestWorkspace, user demo.User) {
	i.t.Helper()
	long := p.NewWorkspace(i.t)
	p.Database.Exec(i.t, `update account.tenants set name = $2 where id = $1`, long.Workspace.ID,
		strings.Repeat("Northumberland", 3)+" and Borders Community Food and Companionship")
	p.Database.Join(i.t, long.Workspace, user, harness.Everything()...)
	here := "?tenant=" + long.Workspace.ID
	for range 26 {
		p.Database.Token(i.t, long.Workspace, user, harness.ReadProgrammes)
		long.Member(i.t, harness.ReadProgrammes)
		long.Confidential(i.t, "", harness.ReadProgrammes)
	}
	for _, page := range []string{"/settings/developers", "/settings/applications", "/settings/members"} {
		i.OpenAndSee(p.AppURL+page+here, ".pager")
		i.look("26 rows of a workspace with a long name: " + page)
	}
	i.OpenAndSee(p.AuthorizeURL(long.Connector(i.t, harness.ReadProgrammes).Begin().Query), approveButton)
	i.look("consent in a workspace with a long name")

	application := ws.Connector(i.t, harness.ReadProgrammes)
	for range 2 {
		application.Connect(i.t, p.Person(i.t, user))
	}
	i.OpenAndSee(p.AppURL+"/settings/apps", `form[action="/settings/apps/disconnect-all"]`)
	i.look("connected apps, disconnect all")
	i.after(`form[action="/settings/apps/disconnect-all"] button`, "#ended", "connected apps, ended")
}

// addUsage stores what the credentials of a user in a workspace did in the last 30 days, and from where.
func addUsage(t *testing.T, p *harness.Product, in demo.Workspace, user demo.User) {
	t.Helper()
	const credentials = `(select id, tenant_id, user_id, 'connection' as kind from account.grants
		union all select id, tenant_id, user_id, 'personal_access_token' from account.personal_access_tokens) c
		where c.tenant_id = $1 and c.user_id = $2`
	p.Database.Exec(t, `insert into account.usage
		(tenant_id, credential_id, day, operation, kind, user_id, requests, refused, records)
		select c.tenant_id, c.id, (now() at time zone 'UTC')::date - ago, operation, c.kind, c.user_id,
			(ago * 37 % 23 + 1) * weight, (ago * 37 % 23) / 9, (ago * 37 % 23) * 25
		from generate_series(0, 28, 2) ago,
			(values ('list_programmes', 40), ('exportSubmissions', 3)) o (operation, weight),
		`+credentials, in.ID, user.ID)
	p.Database.Exec(t, `insert into account.credential_networks
		(tenant_id, credential_id, network, kind, user_id, first_used_at, last_used_at)
		select c.tenant_id, c.id, network, c.kind, c.user_id, now() - interval '20 days', now()
		from (values ('203.0.113.0/24'::cidr), ('2001:db8:1::/48')) n (network), `+credentials, in.ID, user.ID)
}

// usagePages opens the pages of a connection and of a token, of their user and of the administrators, with usage and
// without, the overview with idle ones, and the page of a former member.
func usagePages(i *inspector, p *harness.Product, ws harness.TestWorkspace, user demo.User, here string) {
	i.t.Helper()
	sam := ws.Member(i.t, harness.Everything()...)
	both := []string{harness.ReadProgrammes, harness.WriteProgrammes}
	ws.Connector(i.t, both...).Connect(i.t, p.Person(i.t, user))
	p.Database.Token(i.t, ws.Workspace, user, both...)
	const latest = ` where tenant_id = $1 and user_id = $2 order by created_at desc, id desc limit 1`
	connection := p.Database.Text(i.t, `select id::text from account.grants`+latest, ws.Workspace.ID, user.ID)
	const newest = `select id::text from account.personal_access_tokens` + latest
	token := p.Database.Text(i.t, newest, ws.Workspace.ID, user.ID)
	pages := []string{
		"/settings/apps/app?id=" + connection, "/settings/connectors/connection" + here + "&id=" + connection,
		"/settings/tokens/token?id=" + token, "/settings/connectors/token" + here + "&id=" + token,
		"/settings/connectors/usage" + here,
	}
	for _, page := range pages {
		i.Open(p.AppURL + page)
		i.look("unused: " + page)
	}
	addUsage(i.t, p, ws.Workspace, user)
	p.Database.Token(i.t, ws.Workspace, sam, harness.ReadProgrammes)
	ws.Connector(i.t, harness.ReadProgrammes).Connect(i.t, p.Person(i.t, sam))
	for _, table := range []string{"grants", "personal_access_tokens"} {
		p.Database.Exec(i.t, `update account.`+table+` set created_at = now() - interval '20 days'
			where tenant_id = $1 and user_id = $2`, ws.Workspace.ID, sam.ID)
	}
	p.Database.Exec(i.t, `update account.grants set last_used_at = null where user_id = $1`, sam.ID)
	for _, page := range pages {
		i.at(p.AppURL + page)
	}
	i.Open(p.AppURL + pages[0])
	i.Click(".fold summary")
	for n := range both {
		i.Click(fmt.Sprintf("label.box:nth-child(%d) input", n+1))
	}
	i.after(`form[action="/settings/apps/app"] .button-main`, "#problem", "a connection narrowed to nothing")
	i.Open(p.AppURL + "/settings/members/member" + here + "&id=" + sam.ID)
	i.Click(`form[action="/settings/members/remove"] button`)
	i.after(`input[name=confirm] ~ button`, ".tasks", "former member")
}

// emptyPages opens lists without entries, as the owner of a new workspace and as a user without a workspace see them.
func emptyPages(i *inspector, p *harness.Product) {
	i.t.Helper()
	owner := p.NewWorkspace(i.t).Owner
	i.OpenAs(owner, p.AppURL+"/login")
	i.See("#workspaces")
	for _, page := range []string{"apps", "applications", "connectors", "connectors/log", "members"} {
		i.Open(p.AppURL + "/settings/" + page)
		i.look("empty: " + strings.ReplaceAll(page, "/", " "))
	}
	i.Click(`form[action="/logout"] button`)
	alone := p.Database.User(i.t)
	i.SignIn(alone.Email, alone.Password)
	i.See("#workspaces")
	for _, page := range []string{"user", "connect", "developers"} {
		i.Open(p.AppURL + "/settings/" + page)
		i.look("no workspace: " + page)
	}
}

// webhookPages opens the pages of a webhook endpoint with a delivery in each state, and of a failing endpoint.
func webhookPages(i *inspector, p *harness.Product, here, endpoint string) {
	i.t.Helper()
	i.at(p.AppURL + "/settings/developers/webhook" + here + "&id=" + endpoint)
	p.Database.Exec(i.t, `insert into account.webhook_deliveries
		(id, webhook_id, tenant_id, sent_at, signature, response, cause, type, sequence, tried_at, status, took_ms,
			problem)
		select gen_random_uuid(), w.id, w.tenant_id, now(), 'v1,c2ln', '\x3c00ff', d.*
		from account.webhooks w, (values
			('event', $2, 7, now(), 500, 84, 'The endpoint answered with status 500.'),
			('resend', $2, 7, now(), 204, 31, null),
			('test', $3, null, null, null, null, null)
		) d where w.id = $1`, endpoint, "programme.created", "webhook.test")
	p.Database.Exec(i.t, `update account.webhooks set failing_since = now() - interval '1 day' where id = $1`, endpoint)
	i.Open(p.AppURL + "/settings/developers/webhook" + here + "&id=" + endpoint)
	i.look("webhook endpoint with deliveries")
	i.ClickAndSee(`a[href^="/settings/webhooks/delivery"]`, "#request")
	i.look("webhook delivery that waits")
	i.Click(`.crumb a`)
	i.See("#deliveries")
	i.ClickAndSee(`.row:last-child a[href^="/settings/webhooks/delivery"]`, "#response")
	i.look("webhook delivery with its response")
	i.at(p.AppURL + "/settings/webhooks/events" + here + "&id=" + endpoint)
	i.Open(p.AppURL + "/settings/webhooks" + here)
	i.look("webhooks, one failing")
	i.Open(p.AppURL + "/settings/webhooks/new" + here)
	i.after(`form[action="/settings/developers/webhooks"] .button-main`, "#problem", "new webhook endpoint with errors")
}

// mailPages opens the page of make run that shows the mails, and a mail as mail programs show it.
func mailPages(i *inspector, box *mailbox.Mailbox, user demo.User) {
	i.t.Helper()
	letter := mailTo(i.t, box, user.Email, "New connected app")
	shown := strings.Replace(letter.HTML, "<table", "<main><table", 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/mail" {
			box.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, shown)
	}))
	i.t.Cleanup(site.Close)
	i.at(site.URL + "/")
	i.at(site.URL + "/mail")
}

// errorPages opens pages about errors as a signed-in user sees them.
func errorPages(i *inspector, p *harness.Product, here string) {
	i.t.Helper()
	i.OpenAndSee(p.AppURL+"/settings/nothing", "#group-workspace")
	i.look("signed in: page not found")
	release := p.Database.Hold(i.t, `lock table account.oauth_clients in access exclusive mode`)
	i.OpenAndSee(p.AppURL+"/settings/applications"+here, "#group-workspace")
	i.look("signed in: unavailable")
	release()
}

// formPages opens a form in Welsh and, with problems and a conditional question, in Arabic, and a form on a website.
func formPages(i *inspector, p *harness.Product, ws harness.TestWorkspace) {
	i.t.Helper()
	welsh, _ := formWithTexts(i.t, p, ws, "cy")
	i.at(p.BaseURL + "/v1/engage/public/forms/" + welsh + "/embed")
	i.OpenAndSee(p.BaseURL+"/v1/engage/public/forms/"+welsh+"/embed?lang=ar", "button")
	harness.Evaluate[bool](i, `f2.focus() || true`)
	i.Press("D")
	i.ClickAndSee("button", ".wrong #f6")
	harness.Evaluate[bool](i, `offline.hidden = offline.children[0].hidden = false, true`)
	i.look("a form in Arabic with errors")
	site, _ := newWebsite(i.t, p, ws, "")
	i.OpenAndSee(site, "iframe")
	i.look(onWebsite)
}

// A provider is an OpenID Connect provider that signs everyone in at once, with the address email.
type provider struct {
	email string // set it before a sign-in

	server *httptest.Server
	key    *ecdsa.PrivateKey
	mu     sync.Mutex
	nonce  string // of the last authorization request
}

const providerClient = "almoner"

// newProvider starts a provider.
func newProvider(t testing.TB) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	p := &provider{key: key}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	return p
}

// settings are those of a deployment with this provider, which it calls by the name Riverside.
func (p *provider) settings() map[string]string {
	return map[string]string{
		"ALMONER_UPSTREAM_ISSUER":        p.server.URL,
		"ALMONER_UPSTREAM_CLIENT_ID":     providerClient,
		"ALMONER_UPSTREAM_CLIENT_SECRET": "not a secret",
		"ALMONER_UPSTREAM_NAME":          "Riverside",
	}
}

// ServeHTTP serves the provider's metadata, keys, authorization endpoint and token endpoint.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := func(body any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer(map[string]any{
			"issuer":                                p.server.URL,
			"authorization_endpoint":                p.server.URL + "/authorize",
			"token_endpoint":                        p.server.URL + "/token",
			"jwks_uri":                              p.server.URL + "/jwks",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	case "/jwks":
		public, _ := jwk.FromRaw(p.key.Public())
		_ = public.Set(jwk.KeyIDKey, "one")
		answer(map[string]any{"keys": []any{public}})
	case "/authorize":
		q := r.URL.Query()
		p.nonce = q.Get("nonce")
		back := url.Values{"code": {rand.Text()}, "state": {q.Get("state")}}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	case "/token":
		claims, _ := json.Marshal(map[string]any{
			"iss":            p.server.URL,
			"aud":            providerClient,
			"sub":            p.email,
			"nonce":          p.nonce,
			"iat":            time.Now().Unix(),
			"exp":            time.Now().Add(time.Minute).Unix(),
			"email":          p.email,
			"email_verified": true,
		})
		headers := jws.NewHeaders()
		_ = headers.Set(jws.KeyIDKey, "one")
		signed, err := jws.Sign(claims, jws.WithKey(jwa.ES256, p.key, jws.WithProtectedHeaders(headers)))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(map[string]any{"id_token": string(signed), "access_token": rand.Text(), "token_type": "Bearer"})
	default:
		http.NotFound(w, r)
	}
}
