package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Section 5b of the contract: usage.

// counts are the requests of an operation, of them the refused ones, and the records.
type counts [3]int64

// wantsUsage waits until the usage of a credential, as its workspace's owner reads it, is want, by operation.
func wantsUsage(
	t *testing.T, p *harness.Product, ws harness.TestWorkspace, credential string, want map[string]counts,
) {
	t.Helper()
	reader := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Credentials
	await.NoError(t, func() error {
		got := map[string]counts{}
		for _, row := range allOf(t, reader.Usage(t.Context(), client.UsageFilter{CredentialID: credential})) {
			sum := got[row.Operation]
			sum[0], sum[1], sum[2] = sum[0]+row.Requests, sum[1]+row.Refused, sum[2]+row.Records
			got[row.Operation] = sum
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("the usage is %v, want %v", got, want)
		}
		return nil
	})
}

// tokenID returns the id of a personal access token.
func tokenID(t *testing.T, p *harness.Product, token string) string {
	t.Helper()
	const find = "select id::text from account.personal_access_tokens where hash = $1"
	return p.Database.Text(t, find, credential.Hash(token))
}

// Every operation that takes a credential counts a request once, by its name, with its refusal and its records.
func TestUsage_EveryOperationCountsOnce(t *testing.T) {
	s := newSampler(t, inParallel(t))
	here := map[string]string{"tenantId": s.ws.Workspace.ID}
	reader := s.ws.Token
	want := map[string]map[string]counts{}
	for _, o := range s.description.Operations() {
		if scheme(o) != "bearer" && scheme(o) != "assistant" {
			continue
		}
		s.ws.Token = s.Database.Token(t, s.ws.Workspace, s.ws.Owner, harness.Everything()...)
		id := tokenID(t, s.Product, s.ws.Token)
		name := o.Text("operationId")
		a := s.send(t, s.caller(o), o, s.path(o, here))
		one := counts{1}
		switch {
		case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden:
			one[1] = 1
		case a.Status < 300:
			one[2] = recordsIn(a)
		}
		want[id] = map[string]counts{name: one}
	}
	s.ws.Token = reader
	for credential, usage := range want {
		_, message := usage["sendMessage"]
		_, imports := usage["importProgrammes"]
		if !message && !imports { // see TestUsage_CountsToolsGrantsAndServices
			wantsUsage(t, s.Product, s.ws, credential, usage)
		}
	}
	if len(want) < 50 {
		t.Errorf("only %d operations", len(want))
	}
}

// recordsIn returns how many records a response gives or has changed.
func recordsIn(a harness.Answer) (n int64) {
	var body struct {
		Data               []struct{ Status any }
		DeletedSubmissions *int
	}
	if json.Unmarshal(a.Body, &body) != nil || body.Data == nil {
		if body.DeletedSubmissions != nil && *body.DeletedSubmissions == 0 {
			return 0 // the address is unknown
		}
		return 1
	}
	for _, one := range body.Data {
		if status, item := one.Status.(float64); !item || status < 300 { // of a batch
			n++
		}
	}
	return n
}

// toolCall returns the message that calls a tool without arguments.
func toolCall(name string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":{}}}`
}

// A connection counts its tools, refusals, refreshes and introspections; a repeated answer changes nothing, and an
// import counts when it is processed.
func TestUsage_CountsToolsGrantsAndServices(t *testing.T) {
	p, ws := inWorkspace(t)
	member := ws.Member(t, harness.ReadProgrammes, harness.WriteProgrammes)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	tokens := connector.Connect(t, p.Person(t, member))
	id := harness.GrantOf(t, tokens.AccessToken)
	api := p.In(ws.Workspace, tokens.AccessToken)
	write := api.With("Idempotency-Key", "usage-once")
	for range 2 {
		write.JSON(t, http.MethodPost, programmes, map[string]any{"name": "Night"}).Wants(t, http.StatusCreated)
	}
	batch := map[string]any{"items": []any{map[string]any{"name": "A"}, map[string]any{"name": "\u200b"}}}
	api.JSON(t, http.MethodPost, programmes+"/batch", batch).Wants(t, http.StatusOK)
	api.Send(t, http.MethodPost, programmes+"/imports", "text/csv", "name\nB\nC\nD\n").Wants(t, http.StatusAccepted)
	p.Database.SetModule(t, ws.Workspace, false, true)
	api.Get(t, programmes).WantsNested(t, http.StatusForbidden, "MODULE_NOT_ENABLED")
	p.Database.SetModule(t, ws.Workspace, true, true)
	api.With("X-Tenant-Id", "x").Get(t, programmes).Wants(t, http.StatusBadRequest)
	p.DemoService().Introspect(t, tokens.AccessToken).Wants(t, http.StatusOK)
	tokens = connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	alias := url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {tokens.RefreshToken}, "client_id": {connector.ClientID},
		"resource": {p.BaseURL + "/v1"},
	}
	p.API().Form(t, "/token", alias).Wants(t, http.StatusOK)
	connector.Revoke(t, tokens.RefreshToken).Wants(t, http.StatusOK)
	api.Get(t, programmes).Wants(t, http.StatusUnauthorized)
	p.API().Get(t, programmes).Wants(t, http.StatusUnauthorized)
	wantsUsage(t, p, ws, id, map[string]counts{
		"createProgramme":      {2, 0, 1},
		"batchProgrammes":      {1, 0, 1},
		"importProgrammes":     {1, 0, 3},
		"listProgrammes":       {3, 2, 0},
		"introspectToken":      {1, 0, 0},
		"exchangeToken":        {2, 0, 0},
		"exchangeTokenAtAlias": {1, 0, 0},
		"revokeToken":          {1, 0, 0},
	})

	token := p.Database.Token(t, ws.Workspace, ws.Owner, harness.Everything()...)
	held := tokenID(t, p, token)
	tools := p.As(token)
	message(t, tools, http.StatusOK, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	message(t, tools, http.StatusOK, toolCall("list_programmes"))
	message(t, tools, http.StatusOK, toolCall("whoami"))
	message(t, tools, http.StatusOK, toolCall("unheard_of"))
	p.Database.SetModule(t, ws.Workspace, false, true)
	message(t, tools, http.StatusOK, toolCall("list_programmes"))
	p.Database.SetModule(t, ws.Workspace, true, true)
	p.Database.SetLLM(t, ws.Workspace, false)
	message(t, tools, http.StatusForbidden, toolCall("list_programmes"))
	p.Database.SetLLM(t, ws.Workspace, true)
	wantsUsage(t, p, ws, held, map[string]counts{
		"sendMessage": {2, 0, 0}, "list_programmes": {3, 2, 5}, "whoami": {1, 0, 1},
	})
	// The workspace of an ended token is unknown, so its message is not read.
	ended := p.Database.Token(t, ws.Workspace, ws.Owner, harness.Everything()...)
	p.Database.Exec(t, `update account.personal_access_tokens set revoked_at = now() where hash = $1`,
		credential.Hash(ended))
	message(t, p.As(ended), http.StatusUnauthorized, toolCall("whoami"))
	wantsUsage(t, p, ws, tokenID(t, p, ended), map[string]counts{"sendMessage": {1, 1, 0}})
	for row, err := range p.Client(t, ws.Workspace, harness.Bearer(token)).MyUsage(t.Context(), client.UsageFilter{}) {
		mustRedacted(t, err)
		if row.CredentialID != held || row.Kind != "personal_access_token" {
			t.Errorf("not of the token: %+v", row)
		}
	}
	p.As(token).Get(t, "/v1/me/usage?from=x").WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
}
