package attack

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// These tests try everything that the product signs, seals or issues wherever a value of that sort is accepted. A value
// must be accepted only for its own purpose.

// A place is an input that accepts a secret or a sealed text.
type place struct {
	right string                  // the name of the value that belongs there
	takes func(value string) bool // reports whether the value was accepted
}

func TestSecrets_AreAcceptedForTheirPurposeOnly(t *testing.T) {
	p, e := newAttack(t)
	api := p.In(e.Workspace, e.Token)
	for range 2 { // a second page, for a cursor
		api.JSON(t, http.MethodPost, harness.ListPath, map[string]any{"name": "Pantry"}).Wants(t, http.StatusCreated)
	}
	addForm(t, api, "Second", "text", []string{site})
	attempt := e.connector.Begin()
	consent := e.person.Consent(t, attempt.Query).DecisionForm(t, "approve")
	other := e.connector.Begin()
	cursor := func(path string) string {
		answer := api.Get(t, path+"?limit=1").Wants(t, http.StatusOK)
		meta, _ := answer.Object(t)["meta"].(map[string]any)
		text, _ := meta["nextCursor"].(string)
		return text
	}
	things := map[string]string{
		"personal access token": e.Token,
		"access token":          e.long.AccessToken,
		"refresh token":         e.tokens.RefreshToken,
		"code":                  other.Code(t, e.person),
		"client secret":         e.app.ClientSecret,
		"consent ticket":        consent.Fields.Get("ticket"),
		"form key":              keyOf(t, p, e.person),
		"submission token":      e.submissionToken(t),
		"status token":          e.status,
		"cursor of programmes":  cursor(harness.ListPath),
		"cursor of forms":       cursor("/v1/engage/forms"),
		"embed key":             e.embedKey,
		"session cookie":        sessionCookie(e.person),
		"grant":                 e.grant,
		"sign-in":               e.signIn,
		"client":                e.app.ClientID,
		"empty":                 "",
		"null":                  "null",
		"PKCE challenge":        attempt.Query.Get("code_challenge"),
	}
	places := placesOf(t, p, e, things, other, consent)
	for where, place := range places {
		if things[place.right] == "" {
			t.Fatalf("%s: there is no %s", where, place.right)
		}
		for name, value := range things {
			seen.AddAll(value)
			if name != place.right && place.takes(value) {
				t.Errorf("%s is accepted as %s, %s", name, place.right, where)
			}
		}
	}
	for where, place := range places { // last, because some can be used only once
		if !place.takes(things[place.right]) {
			t.Errorf("%s is not accepted %s: the test proves nothing", place.right, where)
		}
	}
	// The credentials of services and of people are separate.
	service := p.Demo.Clients.Service
	for _, bearer := range []string{service.ClientSecret, service.ClientID} {
		p.In(e.Workspace, bearer).Get(t, harness.ListPath).Wants(t, http.StatusUnauthorized)
		p.As(bearer).Get(t, e.Clients()).Wants(t, http.StatusForbidden)
	}
	body := e.app.Body("alm_ac_x")
	body["client_id"], body["client_secret"] = service.ClientID, service.ClientSecret
	e.app.Exchange(t, body).Wants(t, http.StatusBadRequest)
	own := harness.Basic(service.ClientID, service.ClientSecret)
	for _, header := range []string{harness.Basic(e.Owner.Email, e.Owner.Password), own + ", " + own} {
		p.API().With("Authorization", header).Form(t, harness.IntrospectPath, url.Values{"token": {e.Token}}).
			Wants(t, http.StatusUnauthorized)
	}
}

func placesOf(
	t *testing.T, p *harness.Product, e *target, things map[string]string, other harness.Attempt, consent harness.Form,
) map[string]place {
	ok := func(answer harness.Answer) bool { return answer.Status < 400 }
	ticket := things["consent ticket"]
	secret := []string{
		"", e.Token, e.long.AccessToken, e.tokens.RefreshToken, e.app.ClientSecret, things["session cookie"], ticket,
		things["form key"], things["code"],
	}
	return map[string]place{
		// The access token is a bearer too: each of the next two rows excludes the other's valid token.
		"as bearer of the API": {"personal access token", func(v string) bool {
			return v != e.long.AccessToken && ok(p.In(e.Workspace, v).Get(t, harness.ListPath))
		}},
		"as access token of the API": {"access token", func(v string) bool {
			return v != e.Token && ok(p.In(e.Workspace, v).Get(t, harness.ListPath))
		}},
		"as bearer of account routes": {"personal access token", func(v string) bool {
			return ok(p.As(v).Get(t, e.Clients()))
		}},
		"as bearer of MCP": {"personal access token", func(v string) bool {
			return ok(p.As(v).JSON(t, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		}},
		"as refresh token": {"refresh token", func(v string) bool { return ok(e.connector.Refresh(t, v)) }},
		"as code":          {"code", func(v string) bool { return ok(other.Post(t, other.CodeForm(v))) }},
		"as secret": {"client secret", func(v string) bool {
			body := e.app.Body("alm_ac_nonsense")
			body["client_secret"] = v
			// The secret is right and the code is wrong.
			return e.app.Exchange(t, body).Object(t)["error"] == "invalid_grant"
		}},
		"as consent ticket": {"consent ticket", func(v string) bool {
			form := harness.Form{Action: consent.Action, Fields: copied(consent.Fields, "ticket", v)}
			return ok(e.person.Submit(t, form).Answer)
		}},
		"as ticket of a choice": {"consent ticket", func(v string) bool { // metadata clients alone get such tickets
			form := url.Values{"ticket": {v}, "decision": {"choose"}, "workspace": {e.Workspace.ID}}
			return v == ticket || ok(e.person.Submit(t, formAt(p, "/oauth/authorize/workspace", form)).Answer)
		}},
		"as key of a form": {"form key", func(v string) bool {
			form := sent(t, p, "/settings/developers/tokens/revoke", e.Workspace.ID, v, url.Values{"id": {e.grant}})
			return ok(e.person.Submit(t, form).Answer)
		}},
		"as submission token": {"submission token", func(v string) bool {
			return ok(p.API().With("Origin", site).JSON(t, http.MethodPost, e.publicForm()+"/submissions",
				map[string]any{"submissionToken": v, "answers": map[string]any{"email": "a@example.org"}}))
		}},
		"as status token": {"status token", func(v string) bool {
			return ok(p.API().Get(t, "/v1/engage/public/submissions/"+e.submission+"?token="+url.QueryEscape(v)))
		}},
		"as cursor of programmes": {"cursor of programmes", func(v string) bool {
			return ok(p.In(e.Workspace, e.Token).Get(t, harness.ListPath+"?cursor="+url.QueryEscape(v)))
		}},
		"as cursor of forms": {"cursor of forms", func(v string) bool {
			return ok(p.In(e.Workspace, e.Token).Get(t, "/v1/engage/forms?cursor="+url.QueryEscape(v)))
		}},
		"as embed key": {"embed key", func(v string) bool {
			if slices.Contains(secret, v) {
				return false // paths are logged, and no secret may be logged
			}
			return ok(p.API().Get(t, "/v1/engage/public/forms/"+url.PathEscape(v)))
		}},
		"as session": {"session cookie", func(v string) bool {
			user := p.Person(t, e.Owner)
			user.Header = http.Header{"Cookie": {"almoner=" + url.QueryEscape(v)}}
			return user.Open(t, p.AppURL+"/settings/user").Status == http.StatusOK
		}},
		"as service's secret": {"client secret", func(v string) bool { // the secret of another client is always wrong
			answer := p.API().With("Authorization", harness.Basic(p.Demo.Clients.Service.ClientID, v)).
				Form(t, harness.IntrospectPath, url.Values{"token": {e.Token}})
			return ok(answer) != (v == e.app.ClientSecret)
		}},
	}
}

// sessionCookie returns the value of the session's cookie, or "" if the user is not signed in.
func sessionCookie(p *harness.Person) string {
	for cookie := range strings.SplitSeq(p.Cookies(), "; ") {
		if value, found := strings.CutPrefix(cookie, "almoner="); found {
			return value
		}
	}
	return ""
}
