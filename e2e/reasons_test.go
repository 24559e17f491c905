package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Every end of a grant and every rejected token request has a reason: for the application in error_description, for
// its user in Connected apps, and for the workspace in the audit log, on the page and in the export.

// A cause is what happens to a connection before its refresh token is presented.
type cause struct {
	happens func(*testing.T, *harness.Product, harness.TestWorkspace, *connection)
	code    string // value of error
	text    string // within error_description and the audit log
	shown   string // within Connected apps
	reason  string // in the export
}

// A connection is a grant with its application and its user.
type connection struct {
	harness.Connector
	tokens harness.Tokens
	person *harness.Person
	// presents is the refresh token that is presented at the end.
	presents string
}

func causes() map[string]cause {
	return map[string]cause{
		"a superseded token": {
			func(t *testing.T, _ *harness.Product, _ harness.TestWorkspace, c *connection) {
				c.Refresh(t, c.presents).Tokens(t)
				c.Refresh(t, c.presents).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			},
			"invalid_grant",
			"a superseded refresh token was presented",
			"because an old access key of the application was used again. It may be a lost response rather than " +
				"theft: ",
			"refresh_token_replayed",
		},
		"a code twice": {
			func(t *testing.T, _ *harness.Product, _ harness.TestWorkspace, c *connection) {
				attempt := c.Begin()
				form := attempt.CodeForm(attempt.Code(t, c.person))
				c.presents = attempt.Post(t, form).Tokens(t).RefreshToken
				attempt.Post(t, form).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			},
			"invalid_grant",
			"its authorization code was presented again",
			"because a one-time sign-in code was used again. It may be a lost response rather than theft: ",
			"code_reused",
		},
		"disconnected": {
			func(t *testing.T, p *harness.Product, _ harness.TestWorkspace, c *connection) {
				page := c.person.Arrive(t, p.AppURL+"/settings/apps")
				c.person.Submit(t, page.FormWith(t, `form[action="/settings/apps/disconnect"] input[name=id]`)).
					Wants(t, http.StatusSeeOther)

			},
			"invalid_grant",
			"The user disconnected this application",
			"You disconnected ",
			"disconnected_by_user",
		},
		"the membership over": {
			func(t *testing.T, p *harness.Product, o harness.TestWorkspace, c *connection) {
				p.Database.Leave(t, o.Workspace, c.person.User)
			},
			"invalid_grant",
			"no longer a member of the workspace",
			"You are no longer a member of ",
			"membership_ended",
		},
		"the permissions lost": {
			func(t *testing.T, p *harness.Product, o harness.TestWorkspace, c *connection) {
				p.Database.Permit(t, o.Workspace, c.person.User, harness.ReadForms)
			},
			"invalid_grant",
			"no longer has any of the granted permissions",
			"You no longer have any of these permissions",
			"permissions_lost",
		},
		"the LLM integration off": {
			func(t *testing.T, p *harness.Product, o harness.TestWorkspace, _ *connection) {
				p.Database.SetLLM(t, o.Workspace, false)
			},
			"invalid_grant",
			"has switched its LLM integration off",
			"is switched off",
			"llm_integration_off",
		},
		"the 30 days over": {func(t *testing.T, p *harness.Product, _ harness.TestWorkspace, c *connection) {
			p.Database.EndGrantIn(t, harness.GrantOf(t, c.tokens.AccessToken), -time.Second)
		}, "invalid_grant", "The access that the user approved has expired", "has expired.", "time_over"},
		"the client deleted": {func(t *testing.T, p *harness.Product, o harness.TestWorkspace, c *connection) {
			p.As(o.Token).Send(t, http.MethodDelete, o.Clients()+"/"+c.ClientID, "", "").Wants(t, http.StatusNoContent)
		}, "invalid_client", "The application was deleted", "because the application was deleted.", "client_deleted"},
	}
}

func TestReasons_EveryEndHasReason(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for name, c := range causes() {
		t.Run(name, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			ada := p.Person(t, ws.Member(t, harness.ReadProgrammes))
			held := &connection{Connector: ws.Connector(t, harness.ReadProgrammes), person: ada}
			held.tokens = held.Connect(t, ada)
			held.presents = held.tokens.RefreshToken
			c.happens(t, p, ws, held)

			answer := held.Refresh(t, held.presents)
			answer.WantsFlat(t, http.StatusBadRequest, c.code)
			description, _ := answer.Object(t)["error_description"].(string)
			if !strings.Contains(description, c.text) {
				t.Errorf("error_description %q does not contain %q", description, c.text)
			}
			if page := ada.Arrive(t, p.AppURL+"/settings/apps"); !strings.Contains(page.Text(), c.shown) {
				t.Errorf("Connected apps does not contain %q: %s", c.shown, page.Text())
			}
			owner := p.Person(t, ws.Owner)
			log := owner.Arrive(t, p.AppURL+"/settings/audit?tenant="+ws.Workspace.ID)
			if !strings.Contains(log.Text(), c.text) {
				t.Errorf("the audit log does not contain %q: %s", c.text, log.Text())
			}
			export := string(owner.Open(t, p.AppURL+"/settings/audit.jsonl?tenant="+ws.Workspace.ID).Body)
			if !strings.Contains(export, `"reason":"`+c.reason+`"`) || strings.Contains(export, held.presents) {
				t.Errorf("the export does not contain the reason %s, or contains a token", c.reason)
			}
		})
	}
}
