package attack

import (
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Codes and refresh tokens in the wrong hands: used by another client, in another user's attempt or for another
// resource, or spliced from parts of valid ones.

func TestCode_IsBoundToClientAndAttempt(t *testing.T) {
	p := newProduct(t)
	ws, evil := p.NewWorkspace(t), p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector, app := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	others := map[string]harness.Connector{
		"a sibling":            ws.Connector(t, harness.ReadProgrammes),
		"another workspace's":  evil.Connector(t, harness.ReadProgrammes),
		"the other resource's": ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes),
	}

	victim, attacker := connector.Begin(), connector.Begin()
	code := victim.Code(t, owner)
	for name, other := range others {
		form := copied(copied(victim.CodeForm(code), "client_id", other.ClientID), "resource", other.Resource)
		gets(t, connector.Post(t, form), name+" client exchanged the code", http.StatusBadRequest)
	}
	for _, other := range []harness.ConfidentialApp{app, evil.Confidential(t, "", harness.ReadProgrammes)} {
		other.Exchange(t, other.Body(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
	// Code injection: the victim's code in the attacker's attempt, with the attacker's verifier.
	connector.Post(t, copied(victim.CodeForm(code), "code_verifier", attacker.Verifier)).
		WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	tokens := victim.Post(t, victim.CodeForm(code)).Tokens(t)

	for name, other := range others {
		gets(t, other.Refresh(t, tokens.RefreshToken), name+" client refreshed", http.StatusBadRequest)
		other.Revoke(t, tokens.RefreshToken).Wants(t, http.StatusOK)
	}
	connector.WantsWorking(t, tokens)
}

// TestTokens_SplicedTokenIsRefused checks that the whole token is authenticated: a token spliced from valid ones
// is refused.
func TestTokens_SplicedTokenIsRefused(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	first, second := connector.Connect(t, owner), connector.Connect(t, owner)
	// first's token is superseded now: its replay would revoke the grant.
	next := connector.Refresh(t, first.RefreshToken).Tokens(t)
	attempt := connector.Begin()
	code := attempt.Code(t, owner)
	body := func(token string) string { return token[len("alm_rt_"):] }
	halves := func(a, b string) []string {
		var out []string
		for at := 4; at < len(a); at += 6 {
			out = append(out, a[:at]+b[at:])
		}
		return out
	}
	var forged []string
	for _, pair := range [][2]string{
		{first.RefreshToken, second.RefreshToken},
		{next.RefreshToken, second.RefreshToken},
		{first.RefreshToken, next.RefreshToken},
		{"alm_rt_" + body(code), second.RefreshToken},
	} {
		forged = append(forged, halves(pair[0], pair[1])...)
	}
	forged = append(forged, "alm_rt_"+body(code), body(next.RefreshToken), "ory_rt_"+body(next.RefreshToken),
		strings.ToLower(next.RefreshToken), next.RefreshToken+".", next.RefreshToken+"\n")
	good := map[string]bool{first.RefreshToken: true, second.RefreshToken: true, next.RefreshToken: true}
	for _, token := range forged {
		if !good[token] {
			connector.Refresh(t, token).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			connector.Revoke(t, token).Wants(t, http.StatusOK)
		}
	}
	for _, wrong := range []string{"alm_ac_" + body(next.RefreshToken), "alm_ac_" + body(first.RefreshToken)} {
		attempt.Post(t, attempt.CodeForm(wrong)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
	// No forged token harmed a grant or the code.
	connector.WantsWorking(t, next)
	connector.WantsWorking(t, second)
	attempt.Post(t, attempt.CodeForm(code)).Tokens(t)
}

// TestAuthorize_EveryResponseCarriesIssuer checks against mix-up (RFC 9207): every authorization response names its
// issuer, errors and refusals included, and the metadata says so.
func TestAuthorize_EveryResponseCarriesIssuer(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	callbacks := map[string]harness.Callback{
		"approved": owner.Consent(t, connector.Begin().Query).Press(t, "approve").Callback(t),
		"denied":   owner.Consent(t, connector.Begin().Query).Press(t, "deny").Callback(t),
	}
	for name, query := range map[string]url.Values{
		"no challenge": copied(connector.Begin().Query, "code_challenge", "-"),
		"bad scope":    copied(connector.Begin().Query, "scope", "x"),
		"no state":     copied(connector.Begin().Query, "state", "-"),
		"an iss of one's own": copied(copied(connector.Begin().Query, "iss", "https://evil.example"), "response_type",
			"token"),
	} {
		callbacks[name] = owner.Open(t, p.AuthorizeURL(query)).Callback(t)
	}
	for name, callback := range callbacks {
		if iss := callback.Values["iss"]; len(iss) != 1 || iss[0] != p.BaseURL {
			t.Errorf("%s: iss is %v", name, iss)
		}
	}
	metadata := p.API().Get(t, "/.well-known/oauth-authorization-server").Object(t)
	if metadata["authorization_response_iss_parameter_supported"] != true || metadata["issuer"] != p.BaseURL {
		t.Error("the metadata does not announce the iss parameter")
	}
}

// PKCE (RFC 7636; RFC 9700, section 4.8): it cannot be omitted, weakened or added later.

// copied returns a copy of the form with one field changed. A value of "-" removes the field.
func copied(form url.Values, name, value string) url.Values {
	out := maps.Clone(form)
	out.Set(name, value)
	if value == "-" {
		out.Del(name)
	}
	return out
}

func TestPKCE_VerifierIsRequiredAfterFailedAttempts(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	stolen := connector.Begin().Verifier // of the attacker's attempt
	for turn := range 5 {
		attempt := connector.Begin()
		form, right := attempt.CodeForm(attempt.Code(t, owner)), attempt.Verifier
		wrong := []string{ // three for each code; "-" sends none
			"wrong" + strings.Repeat("x", 43), "-", "",
			"-", "", "-",
			stolen, "-", attempt.Query.Get("code_challenge"),
			right[:len(right)-1], right + "A", strings.ToLower(right),
			strings.Repeat("é", 43), right + " ", "plain",
		}
		for _, verifier := range wrong[3*turn : 3*turn+3] {
			gets(t, connector.Post(t, copied(form, "code_verifier", verifier)),
				"a code was exchanged without its verifier", http.StatusBadRequest)
		}
		twice := maps.Clone(form)
		twice["code_verifier"] = []string{right, right}
		connector.Post(t, twice).WantsFlat(t, http.StatusBadRequest, "invalid_request")
		connector.Post(t, form).Tokens(t) // the right verifier still works
	}
}

func TestPKCE_CannotBeOmittedOrAddedLater(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector, app := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	for name, change := range map[string]map[string]string{
		"no PKCE":         {"code_challenge": "-", "code_challenge_method": "-"},
		"challenge alone": {"code_challenge_method": "-"},
		"method alone":    {"code_challenge": "-"},
		"plain":           {"code_challenge_method": "plain"},
		"empty":           {"code_challenge": ""},
		"none":            {"code_challenge_method": "none"},
		"small":           {"code_challenge_method": "s256"},
	} {
		query := connector.Begin().Query
		for field, value := range change {
			query = copied(query, field, value)
		}
		callback := owner.Open(t, p.AuthorizeURL(query)).Callback(t)
		if callback.Code() != "" || callback.Values.Get("error") != "invalid_request" {
			t.Errorf("%s: %v %s", name, callback.Names(), callback.Values.Get("error"))
		}
	}
	// The attacker removes the challenge from a confidential application's request, and the application sends its
	// verifier.
	verifier := connector.Begin().Verifier
	body := app.Body(app.Code(t, owner))
	body["code_verifier"] = verifier
	app.Exchange(t, body).Wants(t, http.StatusBadRequest)
	// The application sent a challenge, and the attacker exchanges the code without a verifier.
	query := copied(copied(app.Request(), "code_challenge", oauth2.S256ChallengeFromVerifier(verifier)),
		"code_challenge_method", "S256")
	body = app.Body(owner.Consent(t, query).Approve(t))
	for _, wrong := range []any{nil, "", strings.Repeat("x", 43), oauth2.S256ChallengeFromVerifier(verifier)} {
		body["code_verifier"] = wrong
		if wrong == nil {
			delete(body, "code_verifier")
		}
		gets(t, app.Exchange(t, body), "a code was exchanged without regard to its challenge", http.StatusBadRequest)
	}
	body["code_verifier"] = verifier
	app.Exchange(t, body).Tokens(t)
}

// The browser session: fixation, and what ends a session.

// holder returns a browser that sends a cookie which an attacker chose or copied.
func holder(t *testing.T, p *harness.Product, who *harness.Person, cookies string) *harness.Person {
	t.Helper()
	other := p.Person(t, who.User)
	other.Header = http.Header{"Cookie": {cookies}}
	return other
}

func isSignedIn(t *testing.T, p *harness.Product, who *harness.Person) bool {
	t.Helper()
	return who.Open(t, p.AppURL+"/settings/user").Status == http.StatusOK
}

func TestSession_ChosenCookieIsReplaced(t *testing.T) {
	p := newProduct(t)
	user := p.Database.User(t)
	for _, chosen := range []string{
		"", "x", rand.Text() + rand.Text(), strings.Repeat("A", 43), "../../etc/passwd", "' or 1=1 --",
	} {
		victim := p.Person(t, user)
		victim.Header = http.Header{"Cookie": {"almoner=" + url.QueryEscape(chosen)}}
		answer := logIn(t, p, victim, user.Password)
		given := ""
		for _, cookie := range (&http.Response{Header: answer.Header}).Cookies() {
			if cookie.Name == "almoner" {
				given = cookie.Value
			}
			if !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Path != "/" ||
				cookie.Domain != "" {
				t.Errorf("the cookie %s is HttpOnly %v, SameSite %v, Path %q, Domain %q", cookie.Name, cookie.HttpOnly,
					cookie.SameSite, cookie.Path, cookie.Domain)
			}
		}
		if answer.Status != http.StatusSeeOther || len(given) < 40 || given == chosen {
			t.Errorf("got a session of %d characters after the chosen one (%q):\n%s", len(given), chosen, answer)
		}
		if strings.Contains(answer.Header.Get("Location"), given) {
			t.Error("the session is in a URL")
		}
		if isSignedIn(t, p, holder(t, p, victim, "almoner="+url.QueryEscape(chosen))) {
			t.Errorf("the chosen session %q is signed in", chosen)
		}
		if !isSignedIn(t, p, holder(t, p, victim, "almoner="+given)) {
			t.Error("the issued session is not signed in: the test proves nothing")
		}
	}
}

func TestSession_CopiedCookieEndsWithSession(t *testing.T) {
	p := newProduct(t)
	user := p.Database.User(t)
	for name, end := range map[string]func(who *harness.Person){
		"signed out":      func(who *harness.Person) { who.Submit(t, formAt(p, "/logout", url.Values{})) },
		"signed in again": func(who *harness.Person) { logIn(t, p, who, user.Password) },
		"reauthenticated": func(who *harness.Person) {
			who.Submit(t, formAt(p, "/login/again", url.Values{"password": {user.Password}}))
		},
		"ended elsewhere": func(who *harness.Person) {
			other := p.Person(t, user).SignedIn(t)
			other.Submit(t, formAt(p, "/settings/security/sign-out-others", url.Values{"key": {keyOf(t, p, other)}}))
		},
		"user disabled": func(*harness.Person) {
			p.Database.Exec(t, `update account.users set disabled_at = now() where id = $1`, user.ID)
		},
	} {
		who := p.Person(t, user).SignedIn(t)
		copied := who.Cookies()
		if !isSignedIn(t, p, holder(t, p, who, copied)) {
			t.Fatalf("%s: the copied cookie was never signed in", name)
		}
		end(who)
		if isSignedIn(t, p, holder(t, p, who, copied)) {
			t.Errorf("%s: the copied cookie is still signed in", name)
		}
		if name == "user disabled" {
			p.Database.Exec(t, `update account.users set disabled_at = null where id = $1`, user.ID)
		}
	}
}

func TestDisabledUser_LosesAllAccess(t *testing.T) {
	p, e := newAttack(t)
	attempt := e.connector.Begin()
	page := e.person.Consent(t, attempt.Query)
	code := page.Approve(t)
	open := e.person.Consent(t, e.connector.Begin().Query)
	p.Database.Exec(t, `update account.users set disabled_at = now() where id = $1`, e.Owner.ID)
	for name, token := range map[string]string{
		"personal":     e.Token,
		"confidential": e.long.AccessToken,
		"connector":    e.tokens.AccessToken,
	} {
		gets(t, p.In(e.Workspace, token).Get(t, harness.ListPath), name+" token", http.StatusUnauthorized,
			http.StatusForbidden)
		p.As(token).Get(t, e.Clients()).Wants(t, http.StatusForbidden)
		wantsActive(t, p, token, false)
	}
	attempt.Post(t, attempt.CodeForm(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	e.connector.Refresh(t, e.tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	if answer := open.Press(t, "approve"); answer.Header.Get("Location") != "" {
		t.Errorf("a disabled user approves:\n%s", answer)
	}
	if isSignedIn(t, p, e.person) {
		t.Error("the session is alive")
	}
	fresh := p.Person(t, e.Owner)
	fresh.SignIn(t, fresh.Open(t, p.AppURL+"/login")).WantsPage(t, http.StatusBadRequest)
}

// TestPassword_EveryByteCounts checks that every byte of a password counts (other products cut it at byte 72).
func TestPassword_EveryByteCounts(t *testing.T) {
	p := newProduct(t)
	user := p.Database.User(t)
	long := strings.Repeat("correct horse ", 8) // 112 bytes
	p.Database.Exec(t, `update account.users set password_hash = $2 where id = $1`, user.ID, hashOfLongPassword)
	try := func(password string) int { return logIn(t, p, p.Person(t, user), password).Status }
	for name, wrong := range map[string]string{
		"cut at 72":      long[:72],
		"another end":    long[:111] + "x",
		"longer":         long + "x",
		"a NUL":          long[:72] + "\x00" + long[73:],
		"a NUL and more": long + "\x00",
		"the hash":       hashOfLongPassword,
		"capitals":       strings.ToUpper(long),
	} {
		if status := try(wrong); status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, status)
		}
	}
	if status := try(long); status != http.StatusSeeOther {
		t.Errorf("the right password: %d", status)
	}
}

// hashOfLongPassword is a cheap argon2id hash of "correct horse ", eight times.
const hashOfLongPassword = "$argon2id$v=19$m=1024,t=1,p=1$OhVcO6BZTNCjDpoZP5f3oQ$" +
	"dWHg2bAdZmqVM01nu8RG2UeRyuw0RhF1+JTZHWLCu+A"
