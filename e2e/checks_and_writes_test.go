package e2e

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// CHECKS_AND_WRITES.md lists every request that checks, may wait, and then writes. The tests in this file change what
// was checked while such a request waits.

const (
	anotherHash = "$argon2id$v=19$m=1024,t=1,p=1$Q09GeGx1dWNyTEwwNjZoWg$0000000000000000000000000000000000000000000"
	sqlSignOut  = `update account.sign_ins set ended_at = now() where user_id = $1 and ended_at is null`
	sqlLeave    = `delete from account.memberships where tenant_id = $1 and user_id = $2`
	sqlPermit   = `update account.memberships set permissions = $3 where tenant_id = $1 and user_id = $2`
	sqlLLMOff   = `update account.tenant_features set enabled = false
			where tenant_id = $1 and feature = 'llm_integration'`
	sqlDeleted = `update account.oauth_clients set deleted_at = now() where id = $1`
	sqlRevoked = `update account.personal_access_tokens set revoked_at = now(), revoke_reason = 'revoked_by_user'
			where user_id = $1`
)

func ending(sql string, args ...any) withdrawal { return withdrawal{SQL: sql, Args: args} }

// Changes that can occur while a request of a workspace's owner is processed.
func leaves(o harness.TestWorkspace) withdrawal     { return ending(sqlLeave, o.Workspace.ID, o.Owner.ID) }
func signsOut(o harness.TestWorkspace) withdrawal   { return ending(sqlSignOut, o.Owner.ID) }
func losesToken(o harness.TestWorkspace) withdrawal { return ending(sqlRevoked, o.Owner.ID) }
func losesAPIAccess(o harness.TestWorkspace) withdrawal {
	return ending(sqlPermit, o.Workspace.ID, o.Owner.ID, []string{harness.ReadProgrammes})
}
func losesProgrammes(o harness.TestWorkspace) withdrawal {
	return ending(sqlPermit, o.Workspace.ID, o.Owner.ID, []string{harness.APIAccess})
}

// endings are changes that can occur while a form of Settings is processed.
func endings() map[string]func(harness.TestWorkspace) withdrawal {
	return map[string]func(harness.TestWorkspace) withdrawal{
		"the membership ends": leaves, "the permission is lost": losesAPIAccess, "the sign-in ends": signsOut,
	}
}

// wantsRefused sends a request, makes a change while it waits, and checks its status and how many rows of a query there
// are afterwards.
func wantsRefused(
	t *testing.T, p *harness.Product, send func() harness.Answer, change withdrawal, status, rows int, sql string,
	args ...any,
) {
	t.Helper()
	var answer harness.Answer
	inBetween(t, p.Database, func() { answer = send() }, change)
	if n := p.Database.Count(t, sql, args...); answer.Status != status || n != rows {
		t.Errorf("want status %d and %d rows, got %d rows of %s:\n%s", status, rows, n, sql, answer)
	}
}

func TestTie_SignInFailsIfPasswordChangesMeanwhile(t *testing.T) {
	p := inParallel(t)
	for what, change := range map[string]string{
		"the password is changed": `update account.users set password_hash = '` + anotherHash + `' where id = $1`,
		"the user is disabled":    `update account.users set disabled_at = now() where id = $1`,
	} {
		t.Run(what, func(t *testing.T) {
			user := p.Database.User(t)
			person := p.Person(t, user)
			login := person.Open(t, p.AppURL+"/login")
			wantsRefused(t, p, func() harness.Answer { return person.SignIn(t, login).Answer }, ending(change, user.ID),
				http.StatusBadRequest, 0,
				`select count(*) from account.sign_ins where user_id = $1 and ended_at is null`, user.ID)
		})
	}
}

func TestTie_ReauthFailsIfPasswordChangesMeanwhile(t *testing.T) {
	p := inParallel(t)
	user := p.Database.User(t)
	person := p.Person(t, user).SignedIn(t)
	form := person.Open(t, p.AppURL+"/login/again").FormWith(t, "form input[name=password]")
	form.Fields.Set("password", user.Password)
	wantsRefused(t, p, func() harness.Answer { return person.Submit(t, form).Answer },
		ending(`update account.users set password_hash = $2 where id = $1`, user.ID, anotherHash),
		http.StatusBadRequest, 0,
		`select count(*) from account.audit_events where user_id = $1 and action = 'sign_in.proved'`, user.ID)
}

// A form of Settings changes nothing if the right to send it ends meanwhile.
func TestTie_SettingsFormRechecksAccess(t *testing.T) {
	p := inParallel(t)
	for name, c := range map[string]struct {
		page, element string
		fields        url.Values
		rows          int    // after the refusal, of the query
		query         string // $1 is the workspace
	}{
		"new token": {
			"developers/new", "#token-name",
			url.Values{"name": {"Held"}, "days": {"30"}, "permissions": {harness.ReadProgrammes}}, 0,
			`select count(*) from account.personal_access_tokens where tenant_id = $1 and name = 'Held'`,
		},
		"policy": {
			"connectors", "form input[name=days]", url.Values{"days": {"3"}}, 0,
			`select count(*) from account.connector_policies where tenant_id = $1`,
		},
		"disconnect": {
			"connectors", `form[action="/settings/connectors/disconnect"] button[name=id]`,
			url.Values{"confirm": {"yes"}}, 1,
			`select count(*) from account.grants where tenant_id = $1 and state = 'active'`,
		},
		"LLM integration": {
			"connectors", `form[action="/settings/connectors/llm"] input[name=state]`,
			url.Values{"confirm": {"yes"}}, 1,
			`select count(*) from account.tenant_features where tenant_id = $1 and feature = 'llm_integration'
				and enabled`,
		},
	} {
		for what, end := range endings() {
			t.Run(name+", "+what, func(t *testing.T) {
				ws := p.NewWorkspace(t)
				owner := p.Person(t, ws.Owner)
				if c.rows == 1 { // a connection, or what it needs, stays
					ws.Connector(t, harness.ReadProgrammes).Connect(t, owner)
				}
				form := owner.Arrive(t, p.AppURL+"/settings/"+c.page+"?tenant="+ws.Workspace.ID).FormWith(t, c.element)
				maps.Copy(form.Fields, c.fields)
				wantsRefused(t, p, func() harness.Answer { return owner.Submit(t, form).Answer }, end(ws),
					http.StatusForbidden, c.rows, c.query, ws.Workspace.ID)
			})
		}
	}
}

func TestTie_RevokedTokenIsNotReplaced(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	list := owner.Arrive(t, developersURL(p, ws))
	link, there := list.Find(`a[href*="/settings/developers/replace"]`).Attr("href")
	if !there {
		t.Fatalf("no token can be replaced:\n%s", list)
	}
	form := owner.Open(t, p.AppURL+link).FormWith(t, `form[action*="tokens/replace"] button[type=submit]`)
	wantsRefused(t, p, func() harness.Answer { return owner.Submit(t, form).Answer }, losesToken(ws),
		http.StatusForbidden, 0,
		`select count(*) from account.personal_access_tokens where tenant_id = $1 and replaces_id is not null`,
		ws.Workspace.ID)
}

func TestTie_RegistrationRechecksAccess(t *testing.T) {
	p := inParallel(t)
	for what, end := range map[string]func(harness.TestWorkspace) withdrawal{
		"the membership ends": leaves, "the permission is lost": losesAPIAccess, "the token is revoked": losesToken,
		"a permission that the application requires is lost": losesProgrammes,
	} {
		t.Run(what, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			wantsRefused(t, p, func() harness.Answer {
				return ws.Register(t, harness.ConfidentialBody(harness.ReadProgrammes))
			}, end(ws), http.StatusForbidden, 0,
				`select count(*) from account.oauth_clients where tenant_id = $1`, ws.Workspace.ID)
		})
	}
}

func TestTie_ApplicationChangeRechecksAccess(t *testing.T) {
	p := inParallel(t)
	for what, end := range map[string]func(harness.TestWorkspace) withdrawal{
		"the membership ends": leaves, "the token is revoked": losesToken,
	} {
		for _, request := range []struct{ method, path string }{{http.MethodDelete, ""}, {http.MethodPost, "/secret"}} {
			t.Run(what+" "+request.method, func(t *testing.T) {
				ws := p.NewWorkspace(t)
				app := ws.Confidential(t, "", harness.ReadProgrammes)
				path := ws.Clients() + "/" + app.ClientID + request.path
				wantsRefused(t, p, func() harness.Answer {
					return p.As(ws.Token).Send(t, request.method, path, "application/json", "")
				}, end(ws), http.StatusForbidden, 1,
					`select count(*) from account.oauth_clients c join account.client_secrets s on s.client_id = c.id
					where c.id = $1 and c.deleted_at is null`, app.ClientID)
			})
		}
	}
}

func TestTie_ApprovalRechecksAccess(t *testing.T) {
	p := inParallel(t)
	for what, end := range map[string]func(o harness.TestWorkspace, client string) withdrawal{
		"the membership ends":      func(o harness.TestWorkspace, _ string) withdrawal { return leaves(o) },
		"the sign-in ends":         func(o harness.TestWorkspace, _ string) withdrawal { return signsOut(o) },
		"the permissions are lost": func(o harness.TestWorkspace, _ string) withdrawal { return losesProgrammes(o) },
		"LLM integration is switched off": func(o harness.TestWorkspace, _ string) withdrawal {
			return ending(sqlLLMOff, o.Workspace.ID)
		},
		"the application is deleted": func(_ harness.TestWorkspace, client string) withdrawal {
			return ending(sqlDeleted, client)
		},
	} {
		t.Run(what, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			connector := ws.Connector(t, harness.ReadProgrammes)
			page := p.Person(t, ws.Owner).Consent(t, connector.Begin().Query)
			var answer harness.Page
			inBetween(t, p.Database, func() { answer = page.Press(t, "approve") }, end(ws, connector.ClientID))
			if count := grantsOf(t, p, connector.ClientID); count != 0 || answer.Header.Get("Location") != "" ||
				answer.Status != http.StatusBadRequest && answer.Status != http.StatusForbidden {
				t.Errorf("want a page with 400 or 403 and no grant, got %d grants:\n%s", count, answer)
			}
		})
	}
}

// G12: the exchange was decided in Redis and waits for Postgres when the user approves more permissions.
func TestTie_CodeKeepsPermissionsOfItsApproval(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	attempt := connector.Begin()
	owner := p.Person(t, ws.Owner)
	page := owner.Consent(t, attempt.Query)
	reading := page.DecisionForm(t, "approve")
	reading.Fields.Set("access", "read")
	code := attempt.CodeForm(owner.Submit(t, reading).Callback(t).Code())
	grant := p.Database.Text(t, `select id::text from account.grants where client_id = $1`, connector.ClientID)
	var exchanged harness.Answer
	meanwhile(t, p.Database, func() { exchanged = attempt.Post(t, code) }, func() {
		more := page.DecisionForm(t, "approve")
		more.Fields.Set("access", "all")
		if answer := owner.Submit(t, more); answer.Status != http.StatusConflict {
			t.Errorf("the second approval gets status %d", answer.Status)
		}
	}, `select from account.grants where id = $1 for update`, grant)
	tokens := exchanged.Tokens(t)
	refreshed := connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	stored := p.Database.Text(t, `select array_to_string(permissions, ' ') from account.grants where id = $1`, grant)
	if tokens.Scope != harness.ReadProgrammes || refreshed.Scope != harness.ReadProgrammes ||
		stored != harness.ReadProgrammes {
		t.Errorf("granted %q, after a refresh %q, stored %q", tokens.Scope, refreshed.Scope, stored)
	}
}

// F8: A is replaced by B, which is never used, and B by C. The first use of C revokes A and B before the response is
// sent, with either service.
func TestTie_FirstUseRevokesReplacedTokens(t *testing.T) {
	p := inParallel(t)
	for what, use := range map[string]func(o harness.TestWorkspace, token string) harness.Answer{
		"REST": func(o harness.TestWorkspace, token string) harness.Answer {
			return p.In(o.Workspace, token).Get(t, programmes)
		},
		"account": func(o harness.TestWorkspace, token string) harness.Answer {
			return p.As(token).Get(t, o.Clients())
		},
		"introspection": func(_ harness.TestWorkspace, token string) harness.Answer {
			answer := p.DemoService().Introspect(t, token)
			if active := answer.Wants(t, http.StatusOK).Object(t)["active"]; active != true {
				t.Errorf("active is %v, want true", active)
			}
			return answer
		},
	} {
		t.Run(what, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			chain := make([]string, 3)
			for i := range chain {
				chain[i] = p.Database.Token(t, ws.Workspace, ws.Owner, harness.Everything()...)
				if i > 0 {
					replaces(t, p.Database, chain[i], chain[i-1])
				}
			}
			p.In(ws.Workspace, chain[0]).Get(t, programmes).Wants(t, http.StatusOK)
			use(ws, chain[2]).Wants(t, http.StatusOK)
			for _, token := range chain[:2] {
				wantsBearerRejected(t, p, ws, token)
			}
			p.In(ws.Workspace, chain[2]).Get(t, programmes).Wants(t, http.StatusOK)
		})
	}
}

// The table names tests as package.Test, or as Test for tests of this package.
func TestChecksAndWrites_RowsNameExistingTests(t *testing.T) {
	t.Parallel()
	table := fileContent(t, "CHECKS_AND_WRITES.md")
	exists, rows := testsOfTheRepository(t), 0
	for line := range strings.Lines(string(table)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| request") {
			continue
		}
		rows++
		wantsTests(t, exists, line)
	}
	if rows < 20 {
		t.Errorf("%d rows", rows)
	}
}
