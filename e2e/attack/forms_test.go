package attack

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// These tests send every form of the product from another site, with another user's key, and with identifiers of
// another user's data.

func TestForms_EachHasAnAttack(t *testing.T) {
	t.Parallel()
	_, sent := pagesAndForms(t)
	known := fields(&target{})
	for _, path := range sent {
		if _, tried := known[path]; !tried && testedElsewhere[path] == "" {
			t.Errorf("POST %s is a form without an attack: add a row to fields", path)
		}
	}
	for path := range known {
		if !slices.Contains(sent, path) {
			t.Errorf("POST %s is no longer a form", path)
		}
	}
}

// sent returns a form as a page of the product would send it, with the given key.
func sent(t *testing.T, p *harness.Product, path, workspace, key string, values url.Values) harness.Form {
	t.Helper()
	all := url.Values{"tenant": {workspace}, "key": {key}}
	for name, value := range values {
		all[name] = value
	}
	return formAt(p, path, all)
}

// keyOf returns the form key from the user's own page.
func keyOf(t *testing.T, p *harness.Product, who *harness.Person) string {
	t.Helper()
	return keyOn(t, p, who, "/settings/security")
}

func keyOn(t *testing.T, p *harness.Product, who *harness.Person, page string) string {
	t.Helper()
	key := who.Open(t, p.AppURL+page).WantsPage(t, http.StatusOK).Find(`input[name=key]`).First().AttrOr("value", "")
	if key == "" {
		t.Fatal("no key on the page")
	}
	return key
}

// signedInMember returns another member of the victim's workspace, who has a token that their own page can revoke.
func signedInMember(t *testing.T, p *harness.Product, victim *target, permissions ...string) *harness.Person {
	t.Helper()
	user := victim.Member(t, permissions...)
	p.Database.Token(t, victim.Workspace, user, harness.ReadProgrammes)
	return p.Person(t, user).SignedIn(t)
}

func TestForms_CrossSitePostIsRefused(t *testing.T) {
	p, victim := newAttack(t)
	key, was, cookies := keyOf(t, p, victim.person), victim.inventory(t), victim.person.Cookies()
	approve := victim.person.Consent(t, victim.connector.Begin().Query).DecisionForm(t, "approve").Fields
	for path, values := range fields(victim) {
		if t.Failed() {
			break // a build without the protection accepts every form
		}
		if path == "/oauth/authorize" {
			values = approve
		}
		form := sent(t, p, path, victim.Workspace.ID, key, values)
		for name, header := range map[string]http.Header{
			"Origin":     {"Origin": {"https://evil.example"}},
			"null":       {"Origin": {"null"}},
			"the API":    {"Origin": {p.BaseURL}},
			"cross-site": {"Sec-Fetch-Site": {"cross-site"}},
			"same-site":  {"Sec-Fetch-Site": {"same-site"}},
			"lookalike":  {"Origin": {p.AppURL + ".evil.example"}},
			"both":       {"Origin": {p.AppURL}, "Sec-Fetch-Site": {"cross-site"}},
		} {
			victim.person.Header = header
			answer := victim.person.Submit(t, form)
			if answer.Status != http.StatusForbidden || answer.Header.Get("Location") != "" ||
				len(answer.Header.Values("Set-Cookie")) > 0 {
				t.Errorf("%s, from another site (%s): want 403:\n%s", path, name, answer)
			}
		}
		// A page of another site cannot send JSON without a preflight request, and no preflight may allow it.
		victim.person.Header = http.Header{
			"Origin":                         {"https://evil.example"},
			"Access-Control-Request-Method":  {"POST"},
			"Access-Control-Request-Headers": {"content-type"},
		}
		preflight := victim.person.Request(t, http.MethodOptions, form.Action, "", "")
		if preflight.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s may be sent by pages of other sites:\n%s", path, preflight)
		}
	}
	victim.person.Header = http.Header{}
	victim.untouched(t, was, "a form of another site")
	if victim.person.Cookies() != cookies {
		t.Error("the victim's session has changed")
	}
	victim.person.Open(t, p.AppURL+"/settings/security").WantsPage(t, http.StatusOK)
}

// TestForms_KeyOfAnotherSignInIsRefused sends forms without the key of the current sign-in, with another user's key
// and with the key of an earlier sign-in.
func TestForms_KeyOfAnotherSignInIsRefused(t *testing.T) {
	p, victim := newAttack(t)
	attacker := signedInMember(t, p, victim, harness.Everything()...)
	earlier := p.Person(t, victim.Owner).SignedIn(t)
	keys := map[string]string{
		"none":              "",
		"nonsense":          "nonsense",
		"another user's":    keyOf(t, p, attacker),
		"another sign-in's": keyOf(t, p, earlier),
		"a consent ticket": victim.person.Consent(t, victim.connector.Begin().Query).DecisionForm(t, "approve").
			Fields.Get("ticket"),
	}
	earlier.Submit(t, formAt(p, "/logout", url.Values{}))
	was := victim.inventory(t)
	for path, values := range fields(victim) {
		if t.Failed() {
			break // a build without the protection accepts every form
		}
		if !strings.HasPrefix(path, "/settings/") ||
			strings.HasPrefix(path, "/settings/passkeys") && path != "/settings/passkeys/remove" {
			continue // these forms are protected by the session, a challenge, a ticket or a password
		}
		for name, key := range keys {
			gets(t, victim.person.Submit(t, sent(t, p, path, victim.Workspace.ID, key, values)).Answer,
				path+" with this key: "+name, http.StatusForbidden)
		}
	}
	victim.untouched(t, was, "a form with a wrong key")
}

// TestForms_KeyNamesOneEndpointInEachWorkspace sends a form with the same key in two workspaces of the user.
// resourceapi would deliver to only one of two endpoints with the same id.
func TestForms_KeyNamesOneEndpointInEachWorkspace(t *testing.T) {
	p := newProduct(t)
	one, other := p.NewWorkspace(t), p.NewWorkspace(t)
	p.Database.Join(t, other.Workspace, one.Owner, harness.Everything()...)
	user := p.Person(t, one.Owner).SignedIn(t)
	key := keyOf(t, p, user)
	values := url.Values{"url": {"https://hooks.example.invalid/"}, "types": {"programme.created"}}
	for _, workspace := range []string{one.Workspace.ID, other.Workspace.ID, one.Workspace.ID} {
		user.Submit(t, sent(t, p, "/settings/developers/webhooks", workspace, key, values)).WantsPage(t, http.StatusOK)
	}
	const made = "select count(*) from account.webhooks where tenant_id in ($1, $2)"
	if n := p.Database.Count(t, made, one.Workspace.ID, other.Workspace.ID); n != 2 {
		t.Errorf("%d endpoints, want one in each workspace", n)
	}
	ids := strings.Replace(made, "count(*)", "count(distinct id)", 1)
	if n := p.Database.Count(t, ids, one.Workspace.ID, other.Workspace.ID); n != 2 {
		t.Errorf("%d ids, want 2", n)
	}
}

// outOfDate is on the page in the response to a form with a wrong key.
const outOfDate = "out of date"

func TestForms_ChangeNothingOfOtherUsers(t *testing.T) {
	p := newProduct(t)
	victim, stranger := newTarget(t, p), newTarget(t, p)
	plain, colleague := signedInMember(t, p, victim), signedInMember(t, p, victim, harness.Everything()...)
	manages := []string{ // a colleague who manages applications may send these
		"/settings/developers/tokens", "/settings/developers/apps", "/settings/developers/apps/secret",
		"/settings/developers/apps/delete", "/settings/developers/webhooks", "/settings/developers/webhooks/delete",
		"/settings/developers/webhooks/disable", "/settings/developers/webhooks/enable",
		"/settings/developers/webhooks/resend", "/settings/developers/webhooks/secret",
		"/settings/developers/webhooks/personal-data", "/settings/developers/webhooks/test",
		"/settings/developers/webhooks/events",
		"/settings/connectors/policy", "/settings/connectors/disconnect", "/settings/connectors/llm",
		"/settings/connectors/connection", "/settings/connectors/token", "/settings/connectors/usage",
		"/settings/members/invite", "/settings/members/renew", "/settings/members/withdraw",
		"/settings/members/permissions", "/settings/members/remove", "/settings/members/requests",
	}
	concernSender := []string{ // their challenges, their membership and their account
		"/settings/passkeys", "/settings/passkeys/options", "/settings/members/leave", "/settings/user/delete",
	}
	withoutIdentifier := []string{ // these change the sender's own workspace
		"/settings/developers/tokens", "/settings/developers/apps", "/settings/developers/webhooks",
		"/settings/connectors/policy", "/settings/connectors/llm", "/settings/members/invite",
	}
	keyOfPasskeys := keyOn(t, p, stranger.person, "/settings/passkeys")
	was := victim.inventory(t)
	for name, who := range map[string]*harness.Person{
		"the owner of another workspace": stranger.person,
		"a member without permissions":   plain,
		"a colleague":                    colleague,
	} {
		keyOfSettings := keyOf(t, p, who)
		for path, values := range fields(victim) {
			if !strings.HasPrefix(path, "/settings/") || slices.Contains(concernSender, path) ||
				who == colleague && slices.Contains(manages, path) {
				continue
			}
			key := keyOfSettings
			if path == "/settings/passkeys/remove" {
				if who != stranger.person {
					continue // who has no passkey, and so no key of that form
				}
				key = keyOfPasskeys
			}
			places := []string{victim.Workspace.ID, "", stranger.Workspace.ID}
			if slices.Contains(withoutIdentifier, path) {
				places = places[:1]
			}
			for _, workspace := range places {
				answer := who.Submit(t, sent(t, p, path, workspace, key, values))
				if answer.Status >= http.StatusInternalServerError || strings.Contains(answer.Text(), outOfDate) {
					t.Errorf("%s by %s is not read:\n%s", path, name, answer)
				}
				if strings.Contains(string(answer.Body), "alm_") {
					t.Errorf("%s by %s makes a credential:\n%s", path, name, answer)
				}
			}
		}
		victim.untouched(t, was, name)
	}
	// The victim's own form succeeds, so the forms above failed for the right reason.
	disconnect := sent(t, p, "/settings/apps/disconnect", victim.Workspace.ID, keyOf(t, p, victim.person),
		url.Values{"id": {victim.grant}})
	gets(t, victim.person.Submit(t, disconnect).Answer, "the victim's own form", http.StatusSeeOther)
	if victim.inventory(t) == was {
		t.Error("the inventory does not show a grant that ended")
	}
}

func TestPages_ShowOnlyOwnData(t *testing.T) {
	p := newProduct(t)
	victim, stranger := newTarget(t, p), newTarget(t, p)
	plain := signedInMember(t, p, victim)
	restricted := []string{
		"/settings/developers", "/settings/audit", "/settings/audit.jsonl", "/settings/audit.csv",
		"/settings/connectors", "/settings/connectors/log", "/settings/connectors/log.jsonl",
		"/settings/connectors/log.csv", "/settings/members", "/settings/connectors/usage",
		"/settings/connectors/connection", "/settings/connectors/token",
	}
	for _, path := range restricted {
		for _, who := range []*harness.Person{stranger.person, plain} {
			gets(t, who.Open(t, p.AppURL+path+"?tenant="+victim.Workspace.ID).Answer, who.Email+" opens "+path,
				http.StatusForbidden)
		}
	}
	for _, path := range append(restricted, "/settings/user", "/settings/apps", "/settings/security",
		"/settings/security/events", "/settings/security/tokens", "/settings/welcome",
		"/settings/passkeys", "/settings/members/member", "/settings/members/invite", "/settings/apps/app",
		"/settings/tokens/token") {
		for _, query := range []string{
			"", "?user=" + victim.Owner.ID, "?id=" + victim.grant, "?id=" + victim.personal,
			"?tenant=" + stranger.Workspace.ID + "&id=" + victim.grant,
			"?tenant=" + stranger.Workspace.ID + "&id=" + victim.personal, "?tenant=" + victim.Workspace.ID,
			"?tenant=" + stranger.Workspace.ID + "&tenant=" + victim.Workspace.ID,
		} {
			page := stranger.person.Open(t, p.AppURL+path+query)
			for _, theirs := range []string{
				victim.Workspace.Name, victim.Owner.Email, victim.app.ClientID, victim.personal, victim.signIn,
				victim.grant,
			} {
				if strings.Contains(page.Text(), theirs) ||
					(query == "" && strings.Contains(string(page.Body), theirs)) {
					t.Errorf("%s%s shows another user's data: %s", path, query, theirs)
				}
			}
		}
	}
}

// fields returns, by path, the values with which each form would harm the victim. The caller adds key and tenant.
func fields(e *target) map[string]url.Values {
	about := func(id string) url.Values { return url.Values{"id": {id}} }
	return map[string]url.Values{
		"/settings/developers/tokens": {
			"name": {"Planted"}, "days": {"90"}, "permissions": harness.Everything(),
		},
		"/settings/developers/tokens/replace": about(e.personal),
		"/settings/developers/tokens/revoke":  about(e.personal),
		"/settings/developers/apps": {
			"name": {"Planted"}, "kind": {"confidential"}, "redirect_uris": {"https://evil.example/"},
			"permissions": {harness.ReadProgrammes}, "method": {"client_secret_json"},
		},
		"/settings/developers/apps/secret": {"id": {e.app.ClientID}, "expire_old": {"yes"}},
		"/settings/developers/webhooks": {
			"url": {"https://evil.example/"}, "types": {"programme.created"},
		},
		"/settings/developers/webhooks/delete":        about(e.webhook),
		"/settings/developers/webhooks/disable":       about(e.webhook),
		"/settings/developers/webhooks/enable":        about(e.webhook),
		"/settings/developers/webhooks/secret":        about(e.webhook),
		"/settings/developers/webhooks/personal-data": {"id": {e.webhook}, "personal": {"yes"}},
		"/settings/developers/webhooks/events":        {"id": {e.webhook}, "events": {"all"}},
		"/settings/developers/webhooks/test":          about(e.webhook),
		"/settings/developers/webhooks/resend": {
			"id": {e.webhook}, "delivery": {"0199a1c2-7f41-7c55-8b9e-3a4f5d6e7f90"},
		},
		"/settings/developers/apps/delete":   about(e.app.ClientID),
		"/settings/apps/disconnect":          about(e.grant),
		"/settings/apps/disconnect-all":      about(e.app.ClientID),
		"/settings/security/sign-out":        about(e.signIn),
		"/settings/security/sign-out-others": {},
		"/settings/security/tokens/revoke":   about(e.personal),
		"/settings/security/mails":           {}, // turns the optional mails off
		"/settings/security/password": {
			"password": {e.Owner.Password}, "new-password": {"three small boats"}, "end-others": {"yes"},
		},
		"/settings/security/password/remove": {},
		"/settings/connectors/disconnect":    about(e.grant),
		"/settings/connectors/token":         about(e.personal),
		"/settings/connectors/usage":         {"credential": {e.grant, e.personal}},
		"/settings/connectors/connection": {
			"id": {e.grant}, "permissions": {harness.ReadProgrammes},
		},
		"/settings/apps/app":                         {"id": {e.grant}, "permissions": {harness.ReadProgrammes}},
		"/settings/security/authenticator":           {"setup": {"nonsense"}, "code": {"000000"}},
		"/settings/security/authenticator/codes":     {},
		"/settings/security/authenticator/codes.txt": {"codes": {"nonsense"}},
		"/settings/security/authenticator/remove":    {},
		"/settings/user/name":                        {"name": {"Mallory"}},
		"/settings/user/mails":                       {"language": {"cy"}},
		"/settings/user/delete":                      {"confirm": {"yes"}},
		"/settings/user/email":                       {"email": {"eve@evil.example"}},
		"/settings/connectors/llm":                   {"state": {"off"}, "confirm": {"yes"}},
		"/settings/connectors/policy": {
			"platforms": {"other"}, "permissions": {harness.ReadForms}, "days": {"1"}, "confirm": {"yes"},
			"seen": {e.policy},
		},
		"/settings/members/invite":   {"email": {"eve@evil.example"}, "permissions": harness.Everything()},
		"/settings/members/renew":    about(e.invitation),
		"/settings/members/withdraw": about(e.invitation),
		"/settings/members/permissions": {
			"id": {e.member}, "permissions": harness.Everything(), "seen": {harness.ReadProgrammes},
		},
		"/settings/members/requests":      {"id": {e.member}, "decision": {"approve"}},
		"/settings/members/remove":        {"id": {e.member}, "confirm": {"yes"}},
		"/settings/members/leave":         {"confirm": {"yes"}},
		"/settings/members/second-factor": {"state": {"on"}},
		"/invitation":                     {"token": {e.link}, "decision": {"accept"}},
		"/invitation/account":             {"token": {e.link}, "name": {"Planted"}, "password": {"three small boats"}},
		"/invitation/passkey":             {"token": {e.link}, "name": {"Planted"}, "credential": {"{}"}},
		"/invitation/passkey/options":     {"token": {e.link}, "name": {"Planted"}},
		"/settings/passkey-offer":         {},
		"/settings/passkeys/remove":       about(e.passkey),
		"/settings/passkeys":              {"name": {"Planted"}, "answer": {"{}"}},
		"/settings/passkeys/options":      {},
		"/logout":                         {},
		"/login":                          {"email": {e.Owner.Email}, "password": {e.Owner.Password}},
		"/login/code":                     {"ticket": {"nonsense"}, "code": {"000000"}},
		"/login/forgotten":                {"email": {e.Owner.Email}},
		"/login/reset":                    {"token": {"nonsense"}, "new-password": {"three small boats"}},
		"/email":                          {"token": {"nonsense"}, "decision": {"confirm"}},
		"/login/again":                    {"password": {e.Owner.Password}},
		"/login/passkey":                  {"answer": {"{}"}},
		"/login/passkey/options":          {},
		"/login/again/passkey":            {"answer": {"{}"}},
		"/login/again/passkey/options":    {},
		"/access-requests":                {"ticket": {"nonsense"}},
		"/oauth/authorize":                {"decision": {"approve"}},
		"/oauth/authorize/workspace":      {"decision": {"choose"}, "workspace": {e.Workspace.ID}},
	}
}

// testedElsewhere lists the forms that this stack does not offer, with the test that tries them.
var testedElsewhere = map[string]string{
	"/settings/provider/unlink": "needs an upstream provider: authserver/internal/app, " +
		"TestUnlink_LastSignInMethodIsRefused",
	"/login/upstream/confirm": "needs an upstream provider: authserver/internal/app, " +
		"TestProven_UpstreamTakeoverIsConfirmedFirst",
}
