package attack

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
)

// These tests send identifiers of other users' data to every route that takes one.

// A thing is what a request puts into the path in place of a variable, and a body that would do harm.
type thing struct {
	id   func(e *target) string // of the variable that is not the workspace; nil if there is none
	body string
	kind string // content type of the body; "" means JSON if there is a body
}

// things has a row for each API operation that takes an identifier. For operations without a credential, public says
// why they need none, or which test tries them.
func things() (rows map[operation]thing, public map[operation]string) {
	clients := "/v1/account/tenants/{tenantId}/oauth-clients"
	programmes, forms := harness.ListPath, "/v1/engage/forms"
	members := "/v1/account/tenants/{tenantId}/members"
	invitations := "/v1/account/tenants/{tenantId}/invitations"
	member, invitation := func(e *target) string { return e.member }, func(e *target) string { return e.invitation }
	app := func(e *target) string { return e.app.ClientID }
	programme := func(e *target) string { return e.programme }
	form := func(e *target) string { return e.form }
	submission := func(e *target) string { return e.submission }
	hook := func(e *target) string { return e.webhook }
	tenant := "/v1/account/tenants/{tenantId}"
	connection, token := func(e *target) string { return e.grant }, func(e *target) string { return e.personal }
	rows = map[operation]thing{
		{"GET", clients}: {},
		{"POST", clients}: {
			body: `{"name":"Mine","redirectUris":["https://evil.example/"],
							"requiredPermissions":["programmes:read:programmes"]}`,
		},
		{"GET", clients + "/{clientId}"}:         {id: app},
		{"DELETE", clients + "/{clientId}"}:      {id: app},
		{"POST", clients + "/{clientId}/secret"}: {id: app, body: `{"expireOld":true}`},
		{"GET", members}:                         {},
		{"PATCH", members + "/{userId}"}:         {id: member, body: `{"permissions":["engage:read:forms"]}`},
		{"DELETE", members + "/{userId}"}:        {id: member},
		{"GET", invitations}:                     {},
		{"POST", invitations}: {
			body: `{"email":"eve@evil.example","permissions":["programmes:read:programmes"]}`,
		},
		{"DELETE", invitations + "/{invitationId}"}:     {id: invitation},
		{"GET", tenant + "/connections"}:                {},
		{"GET", tenant + "/connections/{connectionId}"}: {id: connection},
		{"PATCH", tenant + "/connections/{connectionId}"}: {
			id: connection, body: `{"permissions":["programmes:read:programmes"]}`,
		},
		{"DELETE", tenant + "/connections/{connectionId}"}: {id: connection},
		{"GET", tenant + "/tokens"}:                        {},
		{"GET", tenant + "/tokens/{tokenId}"}:              {id: token},
		{"DELETE", tenant + "/tokens/{tokenId}"}:           {id: token},
		{"GET", tenant + "/usage"}:                         {},
		{"GET", tenant + "/audit-events"}:                  {},
		{"GET", tenant + "/connector-policy"}:              {},
		{"PUT", tenant + "/connector-policy"}: {
			body: `{"permissions":["programmes:read:programmes"],"platforms":[],"days":1}`,
		},
		{"POST", tenant + "/rehearsals"}:           {body: `{"change":{"setLlmIntegration":{"enabled":false}}}`},
		{"GET", programmes}:                        {},
		{"POST", programmes}:                       {body: `{"name":"Mine"}`},
		{"GET", programmes + "/{id}"}:              {id: programme},
		{"PATCH", programmes + "/{id}"}:            {id: programme, body: `{"name":"Mine"}`},
		{"POST", programmes + "/{id}/transitions"}: {id: programme, body: `{"to":"archived"}`},
		{"POST", programmes + "/imports"}:          {body: "name\nMine\n", kind: "text/csv"},
		{"GET", programmes + "/imports/{id}"}:      {id: func(e *target) string { return e.imported }},
		{"GET", forms}:                             {},
		{"POST", forms}: {
			body: `{"title":"Mine","allowedOrigins":["https://evil.example"],
							"fields":[{"name":"a","label":"a","type":"text","required":false}]}`,
		},
		{"GET", forms + "/{id}"}:             {id: form},
		{"PATCH", forms + "/{id}"}:           {id: form, body: `{"enabled":false}`},
		{"GET", forms + "/{id}/submissions"}: {id: form},
		{"DELETE", forms + "/{id}"}:          {id: form},

		{"DELETE", programmes + "/{id}"}: {id: programme},
		{"POST", programmes + "/transitions"}: {
			body: `{"items":[{"id":"0199a1c2-7f41-7c55-8b9e-3a4f5d6e7f80","to":"archived"}]}`,
		},
		{"POST", programmes + "/batch"}: {body: `{"items":[{"name":"Mine"}]}`},

		{"GET", "/v1/engage/submissions/{id}"}:    {id: submission},
		{"DELETE", "/v1/engage/submissions/{id}"}: {id: submission},
		{"GET", "/v1/engage/supporters"}:          {},
		{"POST", "/v1/engage/supporters/erase"}:   {body: `{"email":"ada@example.org"}`},

		{"GET", "/v1/webhooks"}: {},
		{"POST", "/v1/webhooks"}: {
			body: `{"url":"https://evil.example.invalid/","types":["programme.created"]}`,
		},
		{"GET", "/v1/webhooks/{id}"}:            {id: hook},
		{"PATCH", "/v1/webhooks/{id}"}:          {id: hook, body: `{"enabled":false}`},
		{"DELETE", "/v1/webhooks/{id}"}:         {id: hook},
		{"POST", "/v1/webhooks/{id}/secret"}:    {id: hook},
		{"POST", "/v1/webhooks/{id}/test"}:      {id: hook},
		{"GET", "/v1/webhooks/{id}/deliveries"}: {id: hook},
	}
	embed := "/v1/engage/public/forms/{embedKey}"
	public = map[operation]string{
		{"GET", "/v1/events"}: "see TestEvents_LeaveOutWhatCallerMayNotRead",
		{"POST", "/v1/webhooks/{id}/deliveries/{delivery}/resend"}: "see TestWebhooks_BelongToTheirWorkspace",
		{"GET", "/v1/me"}:                              "see TestMe_DescribesCredentialAndWhereItWorks",
		{"GET", "/v1/me/usage"}:                        "see TestMyUsage_IsThatOfTheCredential",
		{"PUT", programmes + "/external/{externalId}"}: "see TestExternalID_IsUniqueInWorkspace",
		{"GET", "/v1/engage/supporters/{id}"}:          "see TestErase_SubmissionFormAndSupporter",
		{"DELETE", "/v1/engage/supporters/{id}"}:       "see TestErase_SubmissionFormAndSupporter",
		{"GET", "/v1/engage/erasures/{id}"}: "see " +
			"TestErase_ThousandSubmissionsAreErasedAtOnceAndMoreByTheWorker",
		{"GET", forms + "/{id}/submissions/export"}: "see TestExport_Refusals",
		{"GET", embed}:                                                "public: it is the form",
		{"POST", embed + "/submissions"}:                              "public: any visitor may submit",
		{"GET", embed + "/embed"}:                                     "public: it is the form as a page",
		{"POST", embed + "/embed"}:                                    "public: any visitor may submit",
		{"GET", "/v1/engage/public/submissions/{id}"}:                 "see TestStatus_RequiresItsToken",
		{"POST", "/mcp"}:                                              "see TestTools_InvalidArgumentsAreResults",
		{"GET", "/.well-known/oauth-protected-resource/{resource}"}:   "names a document",
		{"GET", "/.well-known/oauth-authorization-server/{resource}"}: "names a document",
		{"GET", "/.well-known/openid-configuration/{resource}"}:       "names a document",
		{"GET", "/v1/docs/{group}"}:                                   "names a page of the documentation",
		{"GET", "/mcp/.well-known/{document}"}:                        "names a document",
	}
	return rows, public
}

// An intruder has a valid credential without access to the victim's data. It names its own workspace or the victim's in
// the header and in the path.
type intruder struct {
	name, token string
	own         string // the workspace that the token is for
}

func intruders(t *testing.T, p *harness.Product, victim *target) []intruder {
	t.Helper()
	stranger, second := p.NewWorkspace(t), p.NewWorkspace(t)
	plain := victim.Member(t)
	p.Database.Join(t, second.Workspace, victim.Owner,
		harness.Everything()...) // the victim's owner works in two workspaces
	elsewhere := second.Confidential(t, "", harness.APIAccess, harness.ReadProgrammes, harness.WriteProgrammes)
	return []intruder{
		{"the owner of another workspace", stranger.Token, stranger.Workspace.ID},
		{
			"a member without permissions", p.Database.Token(t, victim.Workspace, plain, harness.Everything()...),
			victim.Workspace.ID,
		},
		{
			"the victim's token of another workspace",
			p.Database.Token(t, second.Workspace, victim.Owner, harness.Everything()...), second.Workspace.ID,
		},
		{
			"the victim's application of another workspace",
			elsewhere.Connect(t, p.Person(t, victim.Owner)).AccessToken, second.Workspace.ID,
		},
		{"a former member", leaver(t, p, victim), victim.Workspace.ID},
	}
}

func leaver(t *testing.T, p *harness.Product, victim *target) string {
	t.Helper()
	gone := victim.Member(t, harness.Everything()...)
	token := p.Database.Token(t, victim.Workspace, gone, harness.Everything()...)
	p.Database.Leave(t, victim.Workspace, gone)
	return token
}

// try sends one operation with the victim's identifiers. in is the workspace in the path and in the header.
func (i intruder) try(
	t *testing.T, p *harness.Product, op operation, row thing, victim *target, in string,
) harness.Answer {
	t.Helper()
	path := strings.ReplaceAll(op.path, "{tenantId}", in)
	if row.id != nil {
		before, after, _ := strings.Cut(path, "{")
		_, after, _ = strings.Cut(after, "}")
		path = before + row.id(victim) + after
	}
	kind := row.kind
	if kind == "" && row.body != "" {
		kind = "application/json"
	}
	return p.As(i.token).With("X-Tenant-Id", in).Send(t, op.method, path, kind, row.body)
}

func TestAPI_ReachesNoOtherWorkspace(t *testing.T) {
	p, victim := newAttack(t)
	rows, public := things()
	operations := operationsOnThings(t, p)
	for _, op := range operations {
		_, tried := rows[op]
		if _, isPublic := public[op]; !tried && !isPublic {
			t.Errorf("%s %s takes an identifier and has no attack: add a row to things", op.method, op.path)
		}
	}
	for op := range rows {
		if !slices.Contains(operations, op) {
			t.Errorf("%s %s is no longer in the OpenAPI description", op.method, op.path)
		}
	}
	attackers := intruders(t, p, victim)
	was := victim.inventory(t)
	for _, who := range attackers {
		for op, row := range rows {
			places := []string{victim.Workspace.ID}
			if row.id != nil && who.own != victim.Workspace.ID {
				places = append(places, who.own) // the victim's identifier in the intruder's workspace
			}
			for _, in := range places {
				answer := who.try(t, p, op, row, victim, in)
				if answer.Status != http.StatusForbidden && answer.Status != http.StatusNotFound {
					t.Errorf("%s, in %s workspace: want 403 or 404:\n%s", who.name,
						map[bool]string{true: "the victim's", false: "their own"}[in == victim.Workspace.ID], answer)
				}
				for _, secret := range []string{
					victim.app.ClientSecret, "Winter pantry", "Gift Aid export", "ada@example.org",
				} {
					if strings.Contains(string(answer.Body), secret) {
						t.Errorf("%s sees the victim's data:\n%s", who.name, answer)
					}
				}
			}
		}
		victim.untouched(t, was, who.name)
	}
	// A token with access succeeds, so the requests above failed for the right reason.
	owner := intruder{token: victim.Token}
	for op, row := range rows {
		if op.method == http.MethodGet {
			owner.try(t, p, op, row, victim, victim.Workspace.ID).Wants(t, http.StatusOK)
		}
	}
}

func TestAPI_ForeignAndMissingIDsLookAlike(t *testing.T) {
	p, victim := newAttack(t)
	stranger := p.NewWorkspace(t)
	nothing := *victim
	nothing.programme, nothing.imported, nothing.form = uuid.NewString(), uuid.NewString(), uuid.NewString()
	nothing.app.ClientID, nothing.invitation = uuid.NewString(), uuid.NewString()
	nothing.member, nothing.webhook = uuid.NewString(), uuid.NewString()
	nothing.grant, nothing.personal = uuid.NewString(), uuid.NewString()
	rows, _ := things()
	who := intruder{token: stranger.Token}
	for op, row := range rows {
		for _, in := range []string{stranger.Workspace.ID, victim.Workspace.ID, uuid.NewString()} {
			if row.id == nil && in == stranger.Workspace.ID {
				continue
			}
			alike(t, "a missing thing", who.try(t, p, op, row, victim, in), who.try(t, p, op, row, &nothing, in))
		}
		alike(t, "a missing workspace", who.try(t, p, op, row, victim, victim.Workspace.ID),
			who.try(t, p, op, row, victim, uuid.NewString()))
	}
}
