package e2e

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

func leaves(o harness.TestWorkspace) withdrawal {
	return ending(sqlLeave, o.Workspace.ID, o.Owner.ID)
}
func signsOut(o harness.TestWorkspace) withdrawal { return ending(sqlSignOut, o.Owner.ID) }
func losesAPIAccess(o harness.TestWorkspace) withdrawal {
	return ending(sqlPermit, o.Workspace.ID, o.Owner.ID, []string{harness.ReadProgrammes})
}

func TestTie_SignInFailsIfPasswordChangesMeanwhile(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for what, changes := range map[string]func(user string) []withdrawal{
		"the password is changed": func(user string) []withdrawal {
			return []withdrawal{ending(`update account.users set password_hash = $2 where id = $1`, user, anotherHash)}
		},
		"the user is disabled": func(user string) []withdrawal {
			return []withdrawal{ending(`update account.users set disabled_at = now() where id = $1`, user)}
		},
	} {
		t.Run(what, func(t *testing.T) {
			user := p.Database.User(t)
			person := p.Person(t, user)
			login := person.Open(t, p.AppURL+"/login")
			var answer harness.Page
			inBetween(t, p.Database, func() { answer = person.SignIn(t, login) }, changes(user.ID)...)
			live := p.Database.Count(t, `select count(*) from account.sign_ins where user_id = $1 and ended_at is null`,
				user.ID)
			if answer.Status != http.StatusBadRequest || live != 0 {
				t.Errorf("%d active sign-ins, status %d", live, answer.Status)
			}
		})
	}
}

func TestTie_ReauthFailsIfPasswordChangesMeanwhile(t *testing.T) {
	t.Parallel()
	p := enter(t)
	user := p.Database.User(t)
	person := p.Person(t, user).SignedIn(t)
	form := person.Open(t, p.AppURL+"/login/again").FormWith(t, "form input[name=password]")
	form.Fields.Set("password", user.Password)
	var answer harness.Page
	inBetween(t, p.Database, func() { answer = person.Submit(t, form) },
		ending(`update account.users set password_hash = $2 where id = $1`, user.ID, anotherHash))
	reauthentications := p.Database.Count(t,
		`select count(*) from account.audit_events where user_id = $1 and action = 'sign_in.proved'`, user.ID)
	if answer.Status != http.StatusBadRequest || reauthentications != 0 {
		t.Errorf("status %d, %d reauthentications", answer.Status, reauthentications)
	}
}

// endings are changes that can occur while a form of Settings, Developers is processed.
func endings() map[string]func(harness.TestWorkspace) withdrawal {
	return map[string]func(harness.TestWorkspace) withdrawal{
		"the membership ends": leaves, "the permission is lost": losesAPIAccess, "the sign-in ends": signsOut,
	}
}

func TestTie_TokenCreationRechecksAccess(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for what, end := range endings() {
		t.Run(what, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			owner := p.Person(t, ws.Owner)
			page := newTokenPage(t, owner, owner.Arrive(t, developersURL(p, ws)))
			var answer harness.Page
			inBetween(
				t,
				p.Database,
				func() { answer = makeToken(t, owner, page, "Held", "30", harness.ReadProgrammes) },
				end(ws),
			)
			made := p.Database.Count(t,
				`select count(*) from account.personal_access_tokens where tenant_id = $1 and name = 'Held'`,
				ws.Workspace.ID)
			if answer.Status != http.StatusForbidden || made != 0 {
				t.Errorf("status %d, %d tokens created", answer.Status, made)
			}
		})
	}
}

func TestTie_RevokedTokenIsNotReplaced(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	list := owner.Arrive(t, developersURL(p, ws))
	link, there := list.Find(`a[href*="/settings/developers/replace"]`).Attr("href")
	if !there {
		t.Fatalf("no token can be replaced:\n%s", list)
	}
	form := owner.Open(t, p.AppURL+link).FormWith(t, `form[action*="tokens/replace"] button[type=submit]`)
	var answer harness.Page
	inBetween(t, p.Database, func() { answer = owner.Submit(t, form) }, ending(sqlRevoked, ws.Owner.ID))
	made := p.Database.Count(t,
		`select count(*) from account.personal_access_tokens where tenant_id = $1 and replaces_id is not null`,
		ws.Workspace.ID)
	if answer.Status != http.StatusForbidden || made != 0 {
		t.Errorf("status %d, %d tokens created", answer.Status, made)
	}
}

func TestTie_RegistrationRechecksAccess(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for what, end := range map[string]func(harness.TestWorkspace) withdrawal{
		"the membership ends": leaves, "the permission is lost": losesAPIAccess,
		"the token is revoked": func(o harness.TestWorkspace) withdrawal { return ending(sqlRevoked, o.Owner.ID) },
		"a permission that the application requires is lost": func(o harness.TestWorkspace) withdrawal {
			return ending(sqlPermit, o.Workspace.ID, o.Owner.ID, []string{"account:api:access"})
		},
	} {
		t.Run(what, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			var answer harness.Answer
			inBetween(
				t,
				p.Database,
				func() { answer = ws.Register(t, harness.ConfidentialBody(harness.ReadProgrammes)) },
				end(ws),
			)
			made := p.Database.Count(t, `select count(*) from account.oauth_clients where tenant_id = $1`,
				ws.Workspace.ID)
			if answer.Status != http.StatusForbidden || made != 0 {
				t.Errorf("status %d, %d applications registered", answer.Status, made)
			}
		})
	}
}

func TestTie_ApplicationChangeRechecksAccess(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for what, end := range map[string]func(harness.TestWorkspace) withdrawal{
		"the membership ends":  leaves,
		"the token is revoked": func(o harness.TestWorkspace) withdrawal { return ending(sqlRevoked, o.Owner.ID) },
	} {
		for _, request := range []struct{ method, path string }{{http.MethodDelete, ""}, {http.MethodPost, "/secret"}} {
			t.Run(what+" "+request.method, func(t *testing.T) {
				ws := p.NewWorkspace(t)
				app := ws.Confidential(t, "", harness.ReadProgrammes)
				var answer harness.Answer
				inBetween(t, p.Database, func() {
					answer = p.As(ws.Token).
						Send(t, request.method, ws.Clients()+"/"+app.ClientID+request.path, "application/json", "")
				}, end(ws))
				same := p.Database.Count(t,
					`select count(*) from account.oauth_clients c join account.client_secrets s on s.client_id = c.id
					where c.id = $1 and c.deleted_at is null`, app.ClientID)
				if answer.Status != http.StatusForbidden || same != 1 {
					t.Errorf("status %d, %d secrets of existing applications", answer.Status, same)
				}
			})
		}
	}
}

func TestTie_PolicyChangeRechecksAccess(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for what, end := range endings() {
		t.Run(what, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			owner := p.Person(t, ws.Owner)
			form := owner.Arrive(t, p.AppURL+"/settings/connectors?tenant="+ws.Workspace.ID).
				FormWith(t, "form input[name=days]")
			form.Fields.Set("days", "3")
			var answer harness.Page
			inBetween(t, p.Database, func() { answer = owner.Submit(t, form) }, end(ws))
			saved := p.Database.Count(t, `select count(*) from account.connector_policies where tenant_id = $1`,
				ws.Workspace.ID)
			if answer.Status != http.StatusForbidden || saved != 0 {
				t.Errorf("status %d, %d policies saved", answer.Status, saved)
			}
		})
	}
}

func TestTie_ConnectionChangeRechecksAccess(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for field, sqlUnchanged := range map[string]string{
		`form[action="/settings/connectors/disconnect"] button[name=id]`: `select count(*) from account.grants
			where tenant_id = $1 and state = 'active'`,
		`form[action="/settings/connectors/llm"] input[name=state]`: `select count(*) from account.tenant_features
			where tenant_id = $1 and feature = 'llm_integration' and enabled`,
	} {
		for what, end := range endings() {
			t.Run(what, func(t *testing.T) {
				ws := p.NewWorkspace(t)
				owner := p.Person(t, ws.Owner)
				ws.Connector(t, harness.ReadProgrammes).Connect(t, owner)
				form := owner.Arrive(t, p.AppURL+"/settings/connectors?tenant="+ws.Workspace.ID).FormWith(t, field)
				form.Fields.Set("confirm", "yes")
				var answer harness.Page
				inBetween(t, p.Database, func() { answer = owner.Submit(t, form) }, end(ws))
				unchanged := p.Database.Count(t, sqlUnchanged, ws.Workspace.ID)
				if answer.Status != http.StatusForbidden || unchanged != 1 {
					t.Errorf("status %d, %d rows unchanged", answer.Status, unchanged)
				}
			})
		}
	}
}

func TestTie_ApprovalRechecksAccess(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for what, end := range map[string]func(harness.TestWorkspace, string) withdrawal{
		"the membership ends": func(o harness.TestWorkspace, _ string) withdrawal { return leaves(o) },
		"the sign-in ends":    func(o harness.TestWorkspace, _ string) withdrawal { return signsOut(o) },
		"the permissions are lost": func(o harness.TestWorkspace, _ string) withdrawal {
			return ending(sqlPermit, o.Workspace.ID, o.Owner.ID, []string{"account:api:access"})
		},
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
			wantsNoGrant(t, p, answer, connector.ClientID, http.StatusBadRequest, http.StatusForbidden)
		})
	}
}

// G12: the exchange was decided in Redis and waits for Postgres when the user approves more permissions.
func TestTie_CodeKeepsPermissionsOfItsApproval(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
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
	t.Parallel()
	p := enter(t)
	for what, use := range map[string]func(t *testing.T, o harness.TestWorkspace, token string){
		"REST": func(t *testing.T, o harness.TestWorkspace, token string) {
			p.In(o.Workspace, token).Get(t, programmes).Wants(t, http.StatusOK)
		},
		"account": func(t *testing.T, o harness.TestWorkspace, token string) {
			p.As(token).Get(t, o.Clients()).Wants(t, http.StatusOK)
		},
		"introspection": func(t *testing.T, o harness.TestWorkspace, token string) {
			if p.DemoService().Introspect(t, token).Wants(t, http.StatusOK).Object(t)["active"] != true {
				t.Error("the token is not active")
			}
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
			use(t, ws, chain[2])
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
	table, err := os.ReadFile("CHECKS_AND_WRITES.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(?:[a-z/]+\\.)?(Test[A-Za-z0-9_]+)`")
	exists := testsEverywhere(t)
	rows := 0
	for line := range strings.Lines(string(table)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| request") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("row without a test: %s", line)
		}
		for _, test := range tests {
			if !exists[test[1]] {
				t.Errorf("%s does not exist: %s", test[1], line)
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows", rows)
	}
}

// testsEverywhere returns the names of the tests of both services and of e2e.
func testsEverywhere(t *testing.T) map[string]bool {
	t.Helper()
	exists := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	for _, module := range []string{"../authserver", "../resourceapi", "."} {
		must(t, filepath.WalkDir(module, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			for _, found := range declared.FindAllSubmatch(content, -1) {
				exists[string(found[1])] = true
			}
			return err
		}))
	}
	return exists
}

// wantsNoGrant checks that a rejected approval shows a page and leaves no grant.
func wantsNoGrant(t *testing.T, p *harness.Product, page harness.Page, client string, statuses ...int) {
	t.Helper()
	if !slices.Contains(statuses, page.Status) || page.Header.Get("Location") != "" {
		t.Errorf("want a page with one of %v:\n%s", statuses, page)
	}
	if count := grantsOf(t, p, client); count != 0 {
		t.Errorf("%d grants were created", count)
	}
}
