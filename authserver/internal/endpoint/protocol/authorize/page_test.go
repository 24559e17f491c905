package authorize_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const (
	state     = "a state of +/=&%20 and ~üñ"
	challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
)

func request(fields map[string]string, changes map[string]string) string {
	merged := maps.Clone(fields)
	maps.Copy(merged, changes)
	query := url.Values{}
	for name, value := range merged {
		if value != "" {
			query.Set(name, value)
		}
	}
	return "/oauth/authorize?" + query.Encode()
}

func confidential(c client.Client) map[string]string {
	return map[string]string{"client_id": c.ID.String(), "redirect_uri": c.Redirects[0], "state": state}
}

// connector returns a valid request of a connector.
func connector(c client.Client) map[string]string {
	fields := requestOf(c.ID.String(), c.Redirects[0])
	fields["resource"] = c.Resource
	return fields
}

func TestPage_UnknownClientOrAddressIsNeverRedirected(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	good := confidential(app)
	for name, path := range map[string]string{
		"no client":         request(good, map[string]string{"client_id": ""}),
		"unknown client":    request(good, map[string]string{"client_id": "018f0000-0000-7000-8000-000000000000"}),
		"not an identifier": request(good, map[string]string{"client_id": "\x00"}),
		"no address":        request(good, map[string]string{"redirect_uri": ""}),
		"another port": request(good, map[string]string{
			"redirect_uri": strings.Replace(fixture.Callback, "8090", "8091", 1),
		}),
		"longer address":       request(good, map[string]string{"redirect_uri": fixture.Callback + "/x"}),
		"upper case":           request(good, map[string]string{"redirect_uri": strings.ToUpper(fixture.Callback)}),
		"a parameter twice":    request(good, nil) + "&state=again",
		"an unknown one twice": request(good, nil) + "&x=1&x=2",
	} {
		for who, browser := range map[string]*browsertest.Browser{
			"stranger": site.Browser(), "member": site.SignedIn(site.Member(perm.ProgrammesRead)),
		} {
			page := browser.Get(path)
			if page.Status != http.StatusBadRequest || page.Location() != "" {
				t.Errorf("%s, %s: %d to %q", name, who, page.Status, page.Location())
			}
		}
	}
}

func TestPage_SignInLeadsBackToSameRequest(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	good := request(confidential(app), nil)
	for name, path := range map[string]string{
		"good":     good,
		"no state": request(confidential(app), map[string]string{"state": ""}),
		"longest":  request(confidential(app), map[string]string{"state": strings.Repeat("ü", 1024)}),
	} {
		browser := site.Browser()
		page := browser.Get(path)
		if page.Status != http.StatusOK || page.Location() != "" || !page.HasText("Sign in") ||
			!page.HasText(app.Name) {
			t.Fatalf("%s: %d to %q: %s", name, page.Status, page.Location(), page.Text())
		}
		wrong := page.Send("/login", browsertest.Fields{"email": ada.Email, "password": "wrong"})
		answer := wrong.Send("/login", browsertest.Fields{"email": ada.Email, "password": browsertest.Password})
		if answer.Status != http.StatusSeeOther || answer.Location() != path {
			t.Errorf("%s: %d to %q", name, answer.Status, answer.Location())
		}
	}
}

func TestPage_FaultsAreRedirectedWithStateAndIssuer(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	for name, c := range map[string]struct {
		path, code string
		stateless  bool
	}{
		"no state": {request(confidential(app), map[string]string{"state": ""}), "invalid_request", true},
		"state too long": {
			request(confidential(app), map[string]string{"state": strings.Repeat("s", 2049)}),
			"invalid_request",
			true,
		},
		"response type": {
			request(confidential(app), map[string]string{"response_type": "token"}),
			"unsupported_response_type",
			false,
		},
		"plain challenge": {
			request(confidential(app), map[string]string{
				"code_challenge":        challenge,
				"code_challenge_method": "plain",
			}),
			"invalid_request",
			false,
		},
		"no challenge": {
			request(connector(assistant), map[string]string{"code_challenge": ""}),
			"invalid_request",
			false,
		},
		"no resource": {
			request(connector(assistant), map[string]string{"resource": ""}),
			"invalid_target",
			false,
		},
		"another resource": {
			request(connector(assistant), map[string]string{"resource": browsertest.Issuer + "/mcp"}),
			"invalid_target",
			false,
		},
		"no permission at all": {
			request(connector(assistant), map[string]string{"scope": "sudo"}),
			"invalid_scope",
			false,
		},
		"nothing left": {
			request(connector(assistant), map[string]string{"scope": "engage:read:forms"}),
			"invalid_scope",
			false,
		},
	} {
		page := browser.Get(c.path)
		to, err := url.Parse(page.Location())
		if page.Status != http.StatusSeeOther || err != nil ||
			!strings.HasPrefix(page.Location(), fixture.Callback+"?") {
			t.Errorf("%s: %d to %q", name, page.Status, page.Location())
			continue
		}
		query, wantState := to.Query(), state
		if c.stateless {
			wantState = ""
		}
		if query.Get("error") != c.code || query.Get("state") != wantState || query.Get("iss") != browsertest.Issuer ||
			query.Get("error_description") == "" {
			t.Errorf("%s: %v", name, query)
		}
		if query.Has("code") {
			t.Errorf("%s: a code went out", name)
		}
	}
}

func TestConsentPage_NamesClientWorkspacePermissionsAndLifetime(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess)
	browser := site.SignedIn(ada)
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	page := browser.Get(request(connector(assistant), nil))
	if page.Status != http.StatusOK {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	for _, words := range []string{
		"Claude",
		"Riverside Food Bank",
		"Riverside Food Bank Trust",
		ada.Email,
		"See programmes",
		"Read the names, summaries",
		"Not included",
		"Add and change programmes",
		"An administrator of Riverside Food Bank",
		"30 days",
		"127.0.0.1:8090",
		"You will be sent back to an app on this computer.",
	} {
		if !page.HasText(words) {
			t.Errorf("the page does not say %q", words)
		}
	}
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	if page := browser.Get(request(confidential(app), nil)); !page.HasText("90 days") ||
		page.HasText("Not included") {
		t.Errorf("confidential: %s", page.Text())
	}
}

func TestConsentPage_OmitsOrganisationNamedLikeWorkspace(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	ada := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess)
	browser := site.SignedIn(ada)
	consent, settings := request(confidential(app), nil), "/settings/developers"
	for _, path := range []string{consent, settings} {
		if page := browser.Get(path); !page.HasText("workspace of Riverside Food Bank Trust") {
			t.Errorf("%s: %s", path, page.Text())
		}
	}
	site.Fixture.Exec(`update account.organisations set name = 'Riverside Food Bank'`)
	for _, path := range []string{consent, settings} {
		if page := browser.Get(path); page.Status != http.StatusOK || page.HasText("workspace of Riverside") {
			t.Errorf("%s: %s", path, page.Text())
		}
	}
	site.Fixture.Join(site.Fixture.Workspace("Elsewhere"), ada.ID, perm.AccountAPIAccess)
	if page := browser.Get(settings); !page.HasText("Elsewhere Riverside Food Bank Switch workspace") {
		t.Errorf("the choice: %s", page.Text())
	}
	site.Fixture.Exec(`update account.tenants set name = 'Elsewhere'`)
	if page := browser.Get(settings); !page.HasText("Elsewhere (Elsewhere Trust)") ||
		!page.HasText("Elsewhere (Riverside Food Bank)") {
		t.Errorf("the choice of two workspaces with one name: %s", page.Text())
	}
}

func TestConsentPage_SecurityHeaders(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	page := site.SignedIn(site.Member(perm.ProgrammesRead)).Get(request(confidential(app), nil))
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; " +
			"frame-ancestors 'none'; base-uri 'none'",
		"X-Frame-Options":        "DENY",
		"X-Content-Type-Options": "nosniff",
		"Referrer-Policy":        "same-origin",
		"Content-Type":           "text/html; charset=utf-8",
	} {
		if got := page.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if !strings.Contains(strings.Join(page.Header.Values("Cache-Control"), ","), "no-store") {
		t.Errorf("Cache-Control: %v", page.Header.Values("Cache-Control"))
	}
	if len(page.Elements("script")) != 0 {
		t.Error("there is a script on the consent page")
	}
}

func TestPage_HeadAndQueryApproveNothing(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	form := browser.Get(request(confidential(app), nil)).Form("/oauth/authorize")
	form.Set("decision", "approve")
	for _, path := range []string{
		request(confidential(app), nil),
		request(confidential(app), nil) + "&" + form.Encode(),
		"/oauth/authorize?" + form.Encode(),
	} {
		if page := browser.Do(http.MethodHead, path, "", nil); page.Location() != "" || page.Body != "" {
			t.Errorf("HEAD: %d to %q", page.Status, page.Location())
		}
		browser.Get(path)
	}
	if n := site.Count(`select count(*) from account.grants`); n != 0 {
		t.Errorf("%d grants", n)
	}
}

func TestConsentPage_RefusalNamesReason(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	reader, outsider, writer := site.Member(perm.ProgrammesRead), site.Stranger(), site.Member(perm.EngageReadForms)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	check := func(name string, who browsertest.Person, path string, words ...string) {
		t.Helper()
		page := site.SignedIn(who).Get(path)
		if page.Status != http.StatusForbidden || page.Location() != "" {
			t.Errorf("%s: %d to %q", name, page.Status, page.Location())
		}
		for _, w := range append(words, who.Email) {
			if !page.HasText(w) {
				t.Errorf("%s: does not say %q: %s", name, w, page.Text())
			}
		}
		if again := page.Form("/logout").Get("return"); again != path {
			t.Errorf("%s: signing in as another user leads to %q", name, again)
		}
	}
	check("not a member", outsider, request(confidential(app), nil), "not a member")
	check("not a member, connector", outsider, request(connector(assistant), nil), "not a member")
	check(
		"a required permission missing",
		reader,
		request(confidential(app), nil),
		"Add and change programmes",
		"administrator",
	)
	check(
		"nothing left for a connector",
		writer,
		request(connector(assistant), nil),
		"See programmes",
		"Add and change programmes",
	)
	site.Fixture.SetLLM(false)
	check("connectors switched off", reader, request(connector(assistant), nil), "switched off", "administrator")
	lone, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	if page := site.SignedIn(reader).Get(request(confidential(lone), nil)); page.Status != http.StatusOK {
		t.Errorf("confidential while connectors are off: %d", page.Status)
	}
}

func TestConsentPage_IgnoresPermissionsOfOtherWorkspaces(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	outsider, reader := site.Stranger(), site.Member(perm.ProgrammesRead)
	for _, person := range []browsertest.Person{outsider, reader} {
		site.Fixture.Join(elsewhere, person.ID, perm.ProgrammesRead, perm.ProgrammesWrite)
	}
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	if page := site.SignedIn(outsider).Get(request(connector(assistant), nil)); page.Status != http.StatusForbidden ||
		!page.HasText("not a member") {
		t.Errorf("a member of another workspace: %d", page.Status)
	}
	page := site.SignedIn(reader).Get(request(connector(assistant), nil))
	if page.Status != http.StatusOK || !page.HasText("Not included") || page.HasText("Hillside Youth Club") {
		t.Errorf("a member of both: %d %s", page.Status, page.Text())
	}
}
