package signin_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A testEnv is a server with a manager who invites people by the API.
type testEnv struct {
	*browsertest.Server
	t       *testing.T
	manager uuid.UUID
	bearer  []string
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	e := &testEnv{Server: browsertest.Own(t), t: t}
	held := []perm.Permission{perm.AccountAPIAccess, perm.AccountWriteMembers, perm.ProgrammesRead}
	e.manager = e.Fixture.Member(held...)
	e.bearer = apitest.Bearer(e.Fixture.Token(e.manager, held...))
	return e
}

// invite returns the local path of an invitation's page.
func (e *testEnv) invite(email string) string {
	e.t.Helper()
	body, _ := json.Marshal(map[string]any{"email": email, "permissions": []string{"programmes:read:programmes"}})
	answer := e.Send("POST", "/v1/account/tenants/"+e.Fixture.WorkspaceID.String()+"/invitations", string(body),
		append(e.bearer, "Content-Type", "application/json")...)
	if answer.Status != http.StatusCreated {
		e.t.Fatalf("%d %s", answer.Status, answer.Body)
	}
	return strings.TrimPrefix(answer.Text("url"), e.URL)
}

func (e *testEnv) members(email string) int {
	e.t.Helper()
	return e.Count(`select count(*) from account.memberships m join account.users u on u.id = m.user_id
		where u.email = $1 and m.tenant_id = $2 and m.permissions = '{programmes:read:programmes}'`,
		email, e.Fixture.WorkspaceID)
}

func (e *testEnv) wants(what string, page *browsertest.Page, status int, words ...string) {
	e.t.Helper()
	if page.Status != status {
		e.t.Errorf("%s: %d %s", what, page.Status, page.Text())
	}
	for _, text := range words {
		if !page.HasText(text) {
			e.t.Errorf("%s does not say %q: %s", what, text, page.Text())
		}
	}
}

const password = "three small boats"

func TestInvitation_NewPersonCreatesAccountAndJoins(t *testing.T) {
	e := newTestEnv(t)
	path := e.invite("sam@example.org")
	browser := e.Browser()
	page := browser.Get(path)
	e.wants("the page", page, 200, "Join Riverside Food Bank", "Ada Okafor invites sam@example.org", "See programmes",
		"Create your account")
	for name, c := range map[string]struct{ name, password, words string }{
		"no name":        {" ", password, "Enter a name."},
		"no password":    {"Sam Reed", "", "at least 12 characters"},
		"short password": {"Sam Reed", "elevenchars", "at least 12 characters"},
		"long password":  {"Sam Reed", strings.Repeat("ß", 600), "at most 1024 bytes"},
	} {
		refused := page.Send("/invitation/account", browsertest.Fields{"name": c.name, "password": c.password})
		e.wants(name, refused, 400, c.words, "The account was not created.")
		if refused.Form("/invitation/account").Get("name") != c.name ||
			strings.Contains(refused.Text(), "elevenchars") {
			t.Errorf("%s: the form lost the name or shows the password", name)
		}
	}
	if e.Count(`select count(*) from account.users where email = 'sam@example.org'`) != 0 {
		t.Error("an account was created")
	}
	arrived := page.Send("/invitation/account", browsertest.Fields{
		"name": "Sam Reed", "password": password, "username": "eve@example.org",
	})
	e.wants("settings", arrived.Follow(), 200, "You are now a member of Riverside Food Bank.", "sam@example.org")
	if e.members("sam@example.org") != 1 || e.Count(`select count(*) from account.users
		where email = 'eve@example.org'`) != 0 {
		t.Error("the account does not have the invitation's address, or is no member")
	}
	e.wants("the link afterwards", browser.Get(path).Follow(), 200, "You are already a member of Riverside Food Bank.")
	used := e.Browser().Get(path)
	e.wants("the link afterwards, signed out", used, 404, "This invitation is not valid",
		"If you have accepted it, sign in.")
	e.wants("the link afterwards, of another user", e.SignedIn(e.Stranger()).Get(path), 404,
		"This invitation is not valid", "Ask the person who invited you")
	again := page.Send("/invitation/account", browsertest.Fields{"name": "Sam Reed", "password": password})
	e.wants("the form afterwards", again.Follow(), 200, "You are already a member of Riverside Food Bank.")
	signedIn := e.Browser().Get("/login").Send("/login",
		browsertest.Fields{"email": "sam@example.org", "password": password})
	if signedIn.Status != http.StatusSeeOther {
		t.Errorf("sign-in with the password: %d", signedIn.Status)
	}
	token := path[strings.Index(path, "=")+1:]
	if strings.Contains(e.Log.String(), token) || strings.Contains(e.Log.String(), password) {
		t.Error("the token or the password is in the log")
	}
}

func TestInvitation_UserWithAccountMustSignIn(t *testing.T) {
	e := newTestEnv(t)
	sam, eve := e.Stranger(), e.Stranger()
	path := e.invite(sam.Email)
	browser := e.Browser()
	page := browser.Get(path)
	e.wants("signed out, of a link that the inviter saw", page, 200, "Create your account") // as without an account
	token := path[strings.Index(path, "=")+1:]
	forced := browser.Post("/invitation/account", url.Values{
		"token": {token}, "name": {"Eve"}, "password": {password},
	})
	e.wants("a second account", forced, 409, "If you have one already, sign in to answer")
	accepted := browser.Post("/invitation", url.Values{"token": {token}, "decision": {"accept"}})
	if !strings.HasPrefix(accepted.Location(), "/login?return=") {
		t.Errorf("accepted without sign-in: %d to %q", accepted.Status, accepted.Location())
	}
	other := e.SignedIn(eve)
	e.wants("another user", other.Get(path), 403, "This invitation is for another account", sam.Email)
	e.wants("another user accepts",
		other.Post("/invitation", url.Values{"token": {token}, "decision": {"accept"}}), 403,
		"This invitation is for another account")
	signIn := browser.Get(linkTo(t, page, "/login?return="))
	back := signIn.Send("/login", browsertest.Fields{"email": sam.Email, "password": browsertest.Password})
	if back.Location() != path {
		t.Fatalf("sign-in leads to %q", back.Location())
	}
	form := back.Follow()
	e.wants("signed in", form, 200, "Accept", "Decline")
	foreign := e.SignedIn(sam).Get(path).Form("/invitation")
	foreign.Set("decision", "accept")
	e.wants("a form of another session", browser.Post("/invitation", foreign), 403, "opened in another session")
	e.wants("no decision", form.Send("/invitation", browsertest.Fields{"decision": "maybe"}), 400)
	browser.Headers = http.Header{"Sec-Fetch-Site": {"cross-site"}}
	e.wants("from another site", form.Send("/invitation", browsertest.Fields{"decision": "accept"}), 403)
	browser.Headers = http.Header{}
	if e.members(sam.Email) != 0 {
		t.Fatal("joined too early")
	}
	joined := form.Send("/invitation", browsertest.Fields{"decision": "accept"})
	e.wants("settings", joined.Follow(), 200, "You are now a member of Riverside Food Bank.")
	if e.members(sam.Email) != 1 {
		t.Error("not a member")
	}
}

// linkTo returns the target of the page's link that begins with prefix.
func linkTo(t *testing.T, page *browsertest.Page, prefix string) string {
	t.Helper()
	for _, link := range page.Elements("a") {
		if href := browsertest.Attribute(link, "href"); strings.HasPrefix(href, prefix) {
			return href
		}
	}
	t.Fatalf("no link to %s: %s", prefix, page.Text())
	return ""
}

func TestInvitation_GetChangesNothing(t *testing.T) {
	e := newTestEnv(t)
	sam := e.Stranger()
	for _, path := range []string{e.invite(sam.Email), e.invite("new@example.org")} {
		for _, browser := range []*browsertest.Browser{e.Browser(), e.SignedIn(sam)} {
			browser.Get(path)
			browser.Get(path + "&decision=accept&name=Sam&password=" + url.QueryEscape(password))
		}
		page := e.Browser().Get(path)
		e.wants("afterwards", page, 200)
		if page.Header.Get("Referrer-Policy") != "same-origin" || page.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", page.Header)
		}
	}
	if n := e.Count(`select count(*) from account.invitations where ended_at is not null`); n != 0 {
		t.Errorf("%d invitations ended", n)
	}
}

func TestInvitation_IsDeclined(t *testing.T) {
	e := newTestEnv(t)
	sam := e.Stranger()
	for email, browser := range map[string]*browsertest.Browser{
		sam.Email: e.SignedIn(sam), "new@example.org": e.Browser(),
	} {
		path := e.invite(email)
		declined := browser.Get(path).Send("/invitation", browsertest.Fields{"decision": "decline"})
		e.wants(email, declined, 200, "You declined the invitation")
		e.wants(email+" afterwards", browser.Get(path), 404)
	}
	if n := e.Count(`select count(*) from account.audit_events where action = 'invitation.' || 'declined'`); n != 2 {
		t.Errorf("%d events", n)
	}
}

func TestInvitation_RefusalsSayWhy(t *testing.T) {
	e := newTestEnv(t)
	sam := e.Stranger()
	browser := e.SignedIn(sam)
	unknown := strings.Repeat("0", 5)
	for _, token := range []string{"", "x", "alm_inv_" + unknown, "alm_pat_" + unknown} {
		e.wants("token "+token, browser.Get("/invitation?token="+token), 404, "This invitation is not valid")
	}
	form := browser.Get(e.invite(sam.Email))
	e.Fixture.Join(e.Fixture.WorkspaceID, sam.ID, perm.EngageReadForms)
	e.wants("a member", form.Send("/invitation", browsertest.Fields{"decision": "accept"}), 409, "already a member")
	e.Fixture.Exec(`delete from account.memberships where user_id = $1`, sam.ID)
	e.Fixture.Exec(`update account.memberships set permissions = '{account:write:members}' where user_id = $1`,
		e.manager)
	e.wants("the inviter lost the permission", form.Send("/invitation", browsertest.Fields{"decision": "accept"}), 409,
		"can no longer be accepted")
	if n := e.Count(`select count(*) from account.memberships where user_id = $1`, sam.ID); n != 0 {
		t.Error("joined")
	}
	e.Fixture.Exec(`update account.memberships
		set permissions = '{account:api:access,account:write:members,programmes:read:programmes}'
		where user_id = $1`, e.manager)
	form = browser.Get(e.invite(sam.Email))
	restore := e.CutPostgres()
	defer restore()
	e.wants("Postgres is down", form.Send("/invitation", browsertest.Fields{"decision": "accept"}), 503)
}
