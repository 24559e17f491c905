package attack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Metadata clients are not registered here: their documents and their addresses are untrusted input.

// documented is the product, and the website whose clients it accepts.
type documented struct {
	*harness.Product
	site *harness.MetadataHost
}

func TestMetadataClients_WithstandAttacks(t *testing.T) {
	d := documented{newProduct(t), website()}
	t.Run("redirects", d.redirects)
	t.Run("tickets", d.tickets)
	t.Run("names", d.names)
	t.Run("assertions", d.assertions)
}

// redirects tests that "any loopback port" allows no other host, scheme, path or query.
func (d documented) redirects(t *testing.T) {
	address := d.site.Client("/oauth/native",
		[]string{"http://127.0.0.1/callback?keep=1", "https://claude.example/callback"}, nil)
	owner := d.Person(t, d.Demo.Users.Owner).SignedIn(t)
	open := func(uri string) harness.Page {
		return owner.Open(t, d.AuthorizeURL(d.DocumentClient(address, uri, d.BaseURL+"/v1").Begin().Query))
	}
	for _, wrong := range []string{
		"http://localhost:7000/callback?keep=1", "http://[::1]:7000/callback?keep=1",
		"http://127.0.0.2:7000/callback?keep=1", "http://127.1:7000/callback?keep=1",
		"http://2130706433/callback?keep=1", "http://0x7f000001/callback?keep=1", "http://127.0.0.1:7000/callback",
		"http://127.0.0.1:7000/callback?keep=2", "http://127.0.0.1:7000/callback?keep=1&x=2",
		"http://127.0.0.1:7000/Callback?keep=1", "http://127.0.0.1:7000/callback/?keep=1",
		"http://127.0.0.1:7000/x/../callback?keep=1", "https://127.0.0.1:7000/callback?keep=1",
		"http://127.0.0.1:/callback?keep=1", "http://127.0.0.1:0/callback?keep=1",
		"http://127.0.0.1:65536/callback?keep=1", "http://127.0.0.1:99999/callback?keep=1",
		"http://127.0.0.1:+80/callback?keep=1", "http://127.0.0.1:7000@evil.example/callback?keep=1",
		"http://127.0.0.1@evil.example/callback?keep=1", "http://evil.example@127.0.0.1:7000/callback?keep=1",
		"http://127.0.0.1.evil.example/callback?keep=1", "http://127.0.0.1:7000.evil.example/callback?keep=1",
		"http://127.0.0.1:7000/callback?keep=1#", "http://127.0.0.1:7000\\@evil.example/callback?keep=1",
		"http://127.0.0.1:7000%2f@evil.example/callback?keep=1", "HTTP://127.0.0.1:7000/callback?keep=1",
		"https://claude.example:8443/callback", "https://claude.example./callback",
	} {
		wantsNoRedirect(t, open(wrong), wrong)
	}
	for _, right := range []string{
		"http://127.0.0.1:7000/callback?keep=1", "http://127.0.0.1/callback?keep=1", "https://claude.example/callback",
	} {
		open(right).WantsPage(t, http.StatusOK)
	}
}

// tickets tests that a workspace ticket is not a consent ticket, and that another user's ticket is refused.
func (d documented) tickets(t *testing.T) {
	address := d.site.Client("/oauth/tickets", []string{"http://127.0.0.1/callback"}, nil)
	client := d.DocumentClient(address, "http://127.0.0.1:7000/callback", d.BaseURL+"/v1")
	owner, outsider := d.Person(t, d.Demo.Users.Owner).SignedIn(t), d.Person(t, d.Demo.Users.Outsider).SignedIn(t)
	choice := owner.Open(t, d.AuthorizeURL(client.Begin().Query)).DecisionForm(t, "choose")
	choice.Fields.Set("workspace", d.Demo.Workspaces.Main.ID)
	consent := owner.Submit(t, choice).DecisionForm(t, "approve")
	form := func(path, ticket, decision, workspace string) harness.Form {
		return harness.Form{
			Action: d.AppURL + path,
			Fields: url.Values{"ticket": {ticket}, "decision": {decision}, "workspace": {workspace}},
		}
	}
	choose := func(ticket, workspace string) harness.Form {
		return form("/oauth/authorize/workspace", ticket, "choose", workspace)
	}
	first, second := choice.Fields.Get("ticket"), consent.Fields.Get("ticket")
	for name, answer := range map[string]harness.Page{
		"a choice as a consent":  owner.Submit(t, form("/oauth/authorize", first, "approve", "")),
		"a consent as a choice":  owner.Submit(t, choose(second, d.Demo.Workspaces.Empty.ID)),
		"another user's choice":  outsider.Submit(t, choose(first, d.Demo.Workspaces.Empty.ID)),
		"another user's consent": outsider.Submit(t, form("/oauth/authorize", second, "approve", "")),
		"another sign-in's choice": d.Person(t, d.Demo.Users.Owner).SignedIn(t).
			Submit(t, choose(first, d.Demo.Workspaces.Main.ID)),
		"a workspace of others": d.Person(t, d.Demo.Users.Reader).SignedIn(t).
			Open(t, d.AuthorizeURL(client.Begin().Query)).Choose(t, d.Demo.Workspaces.Empty),
		"no such workspace": owner.Submit(t, choose(first, uuid.NewString())),
	} {
		if answer.Status != http.StatusForbidden || answer.Header.Get("Location") != "" {
			t.Errorf("%s: want 403:\n%s", name, answer)
		}
	}
	n := d.Database.Count(t, `select count(*) from account.grants g
			join account.oauth_clients c on c.id = g.client_id where c.metadata_url = $1`, address)
	if n != 0 {
		t.Errorf("%d grants were created", n)
	}
	if callback := owner.Submit(t, consent).Callback(t); callback.Code() == "" {
		t.Error("the right consent gives no code: the test proves nothing")
	}
}

// names tests that a client_id must match a document's address exactly. Other names cause no request, so the service
// cannot be used to reach other machines (SSRF).
func (d documented) names(t *testing.T) {
	good := d.site.Client("/oauth/named", []string{"http://127.0.0.1/callback"}, nil)
	owner := d.Person(t, d.Demo.Users.Owner).SignedIn(t)
	asked := d.site.Requests()
	for _, name := range []string{
		strings.ToUpper(good), good + "?", good + "?x=1", good + "#", good + "/../named",
		strings.Replace(good, "https", "http", 1), strings.Replace(good, "127.0.0.1", "localhost", 1),
		strings.Replace(good, "127.0.0.1", "127.1", 1), strings.Replace(good, "https://", "https://claude.ai@", 1),
		"https://claude.ai#@" + d.site.Name() + "/oauth/named", "https://169.254.169.254/latest/meta-data",
		"https://127.0.0.1:1/x", "https://[::1]:1/x", "https://0/x", "https://metadata/x", "file:///etc/passwd",
		"gopher://127.0.0.1/x", "https://" + d.site.Name() + ".evil.example/oauth/named",
		"https://evil.example/?" + good, good + " ", good + "\x00", "https://" + d.site.Name(),
		"https://" + d.site.Name() + "/",
	} {
		page := owner.Open(t,
			d.AuthorizeURL(d.DocumentClient(name, "http://127.0.0.1:7000/callback", d.BaseURL+"/v1").Begin().Query))
		wantsNoRedirect(t, page, name)
	}
	if now := d.site.Requests(); now != asked {
		t.Errorf("the website got %d requests for invalid names", now-asked)
	}
	// These addresses could have a document.
	for _, other := range []string{
		good + "/", strings.Replace(good, "/oauth/", "//oauth/", 1), strings.Replace(good, "/oauth/", "/%6fauth/", 1),
	} {
		wantsNoRedirect(
			t,
			owner.Open(t, d.AuthorizeURL(
				d.DocumentClient(other, "http://127.0.0.1:7000/callback", d.BaseURL+"/v1").Begin().Query)),
			other,
		)
	}
	asked = d.site.Requests()
	owner.Open(t,
		d.AuthorizeURL(d.DocumentClient(good, "http://127.0.0.1:7000/callback", d.BaseURL+"/v1").Begin().Query)).
		WantsPage(t, http.StatusOK)
	if d.site.Requests() == asked {
		t.Error("the good name caused no request either: the test proves nothing")
	}
}

// assertions tests that a client assertion must be signed with the client's own key, name us as audience, be current
// and be used once (RFC 7523, section 3).
func (d documented) assertions(t *testing.T) {
	key, other := newSigner(t, "k"), newSigner(t, "k")
	public := key.jwk(t)
	address := d.site.Client("/oauth/signs", []string{"https://claude.example/callback"}, map[string]any{
		"token_endpoint_auth_method": "private_key_jwt",
		"jwks_uri":                   d.site.Put("/oauth/signs.json", map[string]any{"keys": []any{public}}),
	})
	sibling := d.site.Client("/oauth/sibling", []string{"https://claude.example/callback"}, nil)
	client := d.DocumentClient(address, "https://claude.example/callback", d.BaseURL+"/v1")
	attempt := client.Begin()
	code := d.Person(t, d.Demo.Users.Owner).Arrive(t, d.AuthorizeURL(attempt.Query)).Choose(t, d.Demo.Workspaces.Main).
		Approve(t)

	now := time.Now().Unix()
	is := func(name, value string) claimSet {
		return claimSet{
			"iss": quoted(address),
			"sub": quoted(address),
			"aud": quoted(d.BaseURL),
			"jti": quoted(uuid.NewString()),
			"iat": fmt.Sprint(now),
			"exp": fmt.Sprint(now + 60),
		}.with(name, value)
	}
	header := func(alg string) string { return object("alg", quoted(alg), "kid", `"k"`, "typ", `"JWT"`) }
	right := func() string { return is("iat", fmt.Sprint(now)).text() }
	good := func() string { return key.sign(t, header("ES256"), right()) }
	wrong := map[string]string{
		"nothing":                "",
		"nonsense":               "x.y.z",
		"no signature":           strings.Join(strings.Split(good(), ".")[:2], ".") + ".",
		"alg none":               encode(header("none")) + "." + encode(right()) + ".",
		"HMAC of the public key": hashed(mustJSON(t, public), header("HS256"), right()),
		"HMAC of nothing":        hashed(nil, header("HS256"), right()),
		"another key":            other.sign(t, header("ES256"), right()),
		"an embedded key": other.sign(t, object("alg", `"ES256"`, "kid", `"k"`, "jwk",
			string(mustJSON(t, other.jwk(t)))), right()),
		"an access token": d.Demo.Tokens.Owner,
	}
	for claim, values := range map[string][]string{
		"aud": {`"https://evil.example"`, `["https://evil.example",` + quoted(d.BaseURL) + `]`, ""},
		"iss": {quoted(sibling)},
		"sub": {quoted(sibling), ""},
		"exp": {fmt.Sprint(now - 120), fmt.Sprint(now + 1e8), quoted(fmt.Sprint(now + 60)), ""},
		"jti": {""},
		"nbf": {fmt.Sprint(now + 600)},
	} {
		for _, value := range values {
			wrong[claim+" "+value] = key.sign(t, header("ES256"), is(claim, value).text())
		}
	}
	send := func(assertion string) harness.Answer {
		form := attempt.CodeForm(code)
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", assertion)
		return attempt.Post(t, form)
	}
	for name, assertion := range wrong {
		if answer := send(assertion); answer.Status != http.StatusBadRequest ||
			answer.Object(t)["error"] == "invalid_grant" {
			t.Errorf("%s authenticates the client:\n%s", name, answer)
		}
	}
	attempt.Post(t, attempt.CodeForm(code)).Wants(t, http.StatusBadRequest)
	once := good()
	tokens := send(once).Tokens(t)
	form := client.RefreshForm(tokens.RefreshToken)
	form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
	for _, repeated := range []string{once, once + "=", ""} {
		form.Set("client_assertion", repeated)
		gets(t, client.Post(t, form), "the same assertion, twice", http.StatusBadRequest)
	}
	d.As(once).With("X-Tenant-Id", tokens.WorkspaceID).Get(t, harness.ListPath).Wants(t, http.StatusUnauthorized)
	form.Set("client_assertion", good())
	client.Post(t, form).Tokens(t)
}

func mustJSON(t *testing.T, value any) []byte {
	t.Helper()
	content, err := json.Marshal(value)
	must(t, err)
	return content
}
