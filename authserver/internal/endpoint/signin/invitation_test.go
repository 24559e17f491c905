package signin_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
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

func newTestEnv(t *testing.T, site *browsertest.Server) *testEnv {
	t.Helper()
	e := &testEnv{Server: site, t: t}
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
	if status := answer.Status; status != http.StatusCreated {
		e.t.Fatalf("%d %s", status, answer.Body)
	}
	return strings.TrimPrefix(answer.Text("url"), e.URL)
}

func (e *testEnv) hasMembers(want int, email string) {
	e.t.Helper()
	e.CountIs(want, `select count(*) from account.memberships m join account.users u on u.id = m.user_id
		where u.email = $1 and m.tenant_id = $2 and m.permissions = '{programmes:read:programmes}'`,
		email, e.Fixture.WorkspaceID)
}

// address returns a new e-mail address.
func address() string { return "invited-" + uuid.NewString()[:8] + "@example.org" }

const password = "three small boats"

func TestInvitation_NewPersonCreatesAccountAndJoins(t *testing.T) {
	e := newTestEnv(t, shared(t))
	sam, eve := address(), address()
	path := e.invite(sam)
	browser := e.Browser()
	page := browser.Get(path).Wants(200, "Join Riverside Food Bank", "Ada Okafor invites "+sam, "See programmes",
		"Create your account")
	for name, c := range map[string]struct{ name, password, words string }{
		"no name":        {" ", password, "Enter a name."},
		"no password":    {"Sam Reed", "", "at least 12 characters"},
		"short password": {"Sam Reed", "elevenchars", "at least 12 characters"},
		"long password":  {"Sam Reed", strings.Repeat("ß", 600), "at most 1024 bytes"},
	} {
		page.Send("/invitation/account", browsertest.Fields{"name": c.name, "password": c.password}).As(name).
			Wants(400, c.words, "The account was not created.").Lacks("elevenchars").
			Keeps("/invitation/account", "name", c.name)
	}
	e.CountIs(0, `select count(*) from account.users where email = $1`, sam)
	arrived := page.Send("/invitation/account",
		browsertest.Fields{"name": "Sam Reed", "password": password, "username": eve})
	arrived.Follow().As("settings").Wants(200, "You are now a member of Riverside Food Bank.", sam)
	e.hasMembers(1, sam)
	e.CountIs(0, `select count(*) from account.users where email = $1`, eve)
	browser.Get(path).Follow().As("the link afterwards").Wants(200, "You are already a member of Riverside Food Bank.")
	e.Browser().Get(path).As("the link afterwards, signed out").Wants(404, "This invitation was used already",
		"sign in with the account that you used, and Riverside Food Bank opens", "ask Ada Okafor")
	e.SignedIn(e.Stranger()).Get(path).As("the link afterwards, of another user").Wants(404,
		"This invitation was used already", "ask Ada Okafor for a new invitation", "Sign in with another account")
	again := page.Send("/invitation/account", browsertest.Fields{"name": "Sam Reed", "password": password})
	again.Follow().As("the form afterwards").Wants(200, "You are already a member of Riverside Food Bank.")
	e.Browser().Get("/login").Send("/login",
		browsertest.Fields{"email": sam, "password": password}).Wants(http.StatusSeeOther)
	token := path[strings.Index(path, "=")+1:]
	if strings.Contains(e.Log.String(), token) || strings.Contains(e.Log.String(), password) {
		t.Error("the token or the password is in the log")
	}
}

func TestInvitation_UserWithAccountMustSignIn(t *testing.T) {
	e := newTestEnv(t, shared(t))
	sam, eve := e.Stranger(), e.Stranger()
	path := e.invite(sam.Email)
	browser := e.Browser()
	page := browser.Get(path)
	page.As("signed out, of a link that the inviter saw").Wants(200, "Create your account") // as without an account
	token := path[strings.Index(path, "=")+1:]
	browser.Post("/invitation/account", url.Values{"token": {token}, "name": {"Eve"}, "password": {password}}).
		As("a second account").Wants(409, "If you have one already, sign in to answer")
	accepted := browser.Post("/invitation", url.Values{"token": {token}, "decision": {"accept"}})
	if !strings.HasPrefix(accepted.Location(), "/login?return=") {
		t.Errorf("accepted without sign-in: %d to %q", accepted.Status, accepted.Location())
	}
	other := e.SignedIn(eve)
	other.Get(path).As("another user").Wants(403, "This invitation is for another account", sam.Email)
	other.Post("/invitation", url.Values{"token": {token}, "decision": {"accept"}}).As("another user accepts").
		Wants(403, "This invitation is for another account")
	signIn := browser.Get(page.Link("/login?return="))
	back := signIn.Send("/login", browsertest.Fields{"email": sam.Email, "password": browsertest.Password})
	back.LeadsTo(path)
	form := back.Follow()
	form.As("signed in").Wants(200, "Accept", "Decline")
	foreign := e.SignedIn(sam).Get(path).Form("/invitation")
	foreign.Set("decision", "accept")
	browser.Post("/invitation", foreign).As("a form of another session").Wants(403, "opened in another session")
	form.Send("/invitation", browsertest.Fields{"decision": "maybe"}).As("no decision").Wants(400)
	browser.Headers = http.Header{"Sec-Fetch-Site": {"cross-site"}}
	form.Send("/invitation", browsertest.Fields{"decision": "accept"}).As("from another site").Wants(403)
	browser.Headers = http.Header{}
	e.hasMembers(0, sam.Email)
	joined := form.Send("/invitation", browsertest.Fields{"decision": "accept"})
	joined.Follow().As("settings").Wants(200, "You are now a member of Riverside Food Bank.")
	e.hasMembers(1, sam.Email)
}

func TestInvitation_GetChangesNothing(t *testing.T) {
	e := newTestEnv(t, shared(t))
	sam := e.Stranger()
	for _, path := range []string{e.invite(sam.Email), e.invite(address())} {
		for _, browser := range []*browsertest.Browser{e.Browser(), e.SignedIn(sam)} {
			browser.Get(path)
			browser.Get(path + "&decision=accept&name=Sam&password=" + url.QueryEscape(password))
		}
		page := e.Browser().Get(path)
		page.As("afterwards").Wants(200)
		if page.Header.Get("Referrer-Policy") != "same-origin" || page.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", page.Header)
		}
	}
	e.Rows(0, "invitations", `ended_at is not null`)
}

func TestInvitation_IsDeclined(t *testing.T) {
	e := newTestEnv(t, shared(t))
	sam := e.Stranger()
	for email, browser := range map[string]*browsertest.Browser{sam.Email: e.SignedIn(sam), address(): e.Browser()} {
		path := e.invite(email)
		browser.Get(path).Send("/invitation", browsertest.Fields{"decision": "decline"}).As(email).Wants(200,
			"You declined the invitation")
		browser.Get(path).As(email+" afterwards").Wants(404, "This invitation was declined", "ask Ada Okafor for a new")
	}
	e.Rows(2, "audit_events", `action = 'invitation.' || 'declined'`)
}

// A link that no longer works tells whom to ask, and leads a member to the workspace.
func TestInvitation_EndedLinkSaysWhy(t *testing.T) {
	e := newTestEnv(t, shared(t))
	path, member, stranger := e.invite(address()), e.SignedIn(e.Member(perm.ProgrammesRead)), e.SignedIn(e.Stranger())
	for _, c := range []struct{ set, words, more string }{
		{"expires_at = now()", "This invitation has expired", "Riverside Food Bank"},
		{"ended_at = now(), outcome = 'withdrawn'", "This invitation was withdrawn", "It was withdrawn"},
		{"ended_at = now(), outcome = 'replaced'", "There is a newer invitation", "Riverside Food Bank"},
		{"ended_at = now(), outcome = 'accepted'", "This invitation was used already", "Riverside Food Bank"},
	} {
		e.Fixture.Exec(`update account.invitations set `+c.set+` where tenant_id = $1`, e.Fixture.WorkspaceID)
		for name, browser := range map[string]*browsertest.Browser{
			"signed out": e.Browser(), "a stranger": stranger,
		} {
			browser.Get(path).As(c.words, name).Wants(404, c.words, c.more, "Ada Okafor").
				Omits("/settings/welcome", `action="/invitation"`)
		}
		member.Get(path).As(c.words).LeadsTo("/settings/welcome?tenant=" + e.Fixture.WorkspaceID.String())
	}
	e.Fixture.Exec(`update account.users set deleted_at = now(), disabled_at = now(), password_hash = null,
		email = id || '@deleted.invalid', name = 'A deleted account' where id = $1`, e.manager)
	e.Browser().Get(path).As("the inviter has no account").Wants(404, "ask an administrator there").
		Lacks("A deleted account")
}

func TestInvitation_RefusalsSayWhy(t *testing.T) {
	e := newTestEnv(t, own(t))
	sam := e.Stranger()
	browser := e.SignedIn(sam)
	unknown := strings.Repeat("0", 5)
	for _, token := range []string{"", "x", "alm_inv_" + unknown, "alm_pat_" + unknown} {
		browser.Get("/invitation?token="+token).As("token "+token).Wants(404, "This invitation is not valid")
	}
	form := browser.Get(e.invite(sam.Email))
	e.Fixture.Join(e.Fixture.WorkspaceID, sam.ID, perm.EngageReadForms)
	form.Send("/invitation", browsertest.Fields{"decision": "accept"}).As("a member").Wants(409, "already a member")
	e.Fixture.Exec(`delete from account.memberships where user_id = $1`, sam.ID)
	e.SetPermissions(e.manager, perm.AccountWriteMembers)
	form.Send("/invitation", browsertest.Fields{"decision": "accept"}).As("the inviter lost the permission").Wants(409,
		"can no longer be accepted")
	e.Rows(0, "memberships", `user_id = $1`, sam.ID)
	e.SetPermissions(e.manager, perm.AccountAPIAccess, perm.AccountWriteMembers, perm.ProgrammesRead)
	form = browser.Get(e.invite(sam.Email))
	restore := e.CutPostgres()
	defer restore()
	form.Send("/invitation", browsertest.Fields{"decision": "accept"}).As("Postgres is down").Wants(503)
}

// The 31st answer to one invitation from one network is refused. The invited person elsewhere is not locked out.
func TestInvitation_AnswersAreLimitedByTokenAndNetwork(t *testing.T) {
	e := newTestEnv(t, shared(t))
	path, other := e.invite(address()), e.invite(address())
	thief := e.Browser()
	page := thief.Get(path)
	answer := browsertest.Fields{"name": "Sam Reed", "password": "short"}
	for i := range 30 {
		page.Send("/invitation/account", answer).As(i).Wants(400)
	}
	answer["password"] = password
	refused := page.Send("/invitation/account", answer).As("the 31st")
	refused.Wants(429, "too many attempts to answer this invitation").Keeps("/invitation/account", "name", "Sam Reed")
	if wait, _ := strconv.Atoi(refused.Header.Get("Retry-After")); wait < 1 {
		t.Errorf("Retry-After %d", wait)
	}
	page.Send("/invitation", browsertest.Fields{"decision": "decline"}).As("declined").Wants(429)
	thief.Get(other).Send("/invitation", browsertest.Fields{"decision": "decline"}).As("another invitation").Wants(200)
	e.Browser().Get(path).Send("/invitation/account", answer).Wants(303)
}

func TestInvitation_UnknownLinksAreLimitedAndValidOnesWork(t *testing.T) {
	e := newTestEnv(t, shared(t))
	path := e.invite(address())
	browser := e.Browser()
	for i := range 300 {
		browser.Get("/invitation?token=alm_inv_" + strconv.Itoa(i)).As(i).Wants(404)
	}
	browser.Get("/invitation?token=alm_inv_x").As("one more").Wants(429, "Too many invalid links").
		HasHeader("Retry-After")
	browser.Get(path).As("a link that exists").Wants(200, "Join Riverside Food Bank")
}
