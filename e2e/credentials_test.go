package e2e

import (
	"iter"
	"net/http"
	"slices"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
)

// Section 5b of the contract with package shared/client: connections, tokens, the audit log and the connector policy.

// allOf reads a list to its end.
func allOf[T any](t *testing.T, list iter.Seq2[T, error]) (all []T) {
	t.Helper()
	for one, err := range list {
		mustRedacted(t, err)
		all = append(all, one)
	}
	return all
}

func listedTokens(t *testing.T, p *harness.Product, ws harness.TestWorkspace) []client.PersonalAccessToken {
	t.Helper()
	return allOf(t, p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Credentials.Tokens(t.Context(), ""))
}

func TestCredentials_NarrowedAndEndedConnectionActsAtOnce(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Credentials
	member := ws.Member(t, harness.ReadProgrammes, harness.WriteProgrammes)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	tokens := connector.Connect(t, p.Person(t, member))
	id := harness.GrantOf(t, tokens.AccessToken)
	listed := allOf(t, api.Connections(t.Context(), client.ConnectionFilter{UserID: member.ID, State: "active"}))
	if len(listed) != 1 || listed[0].ID != id || listed[0].User.Email != member.Email ||
		listed[0].Client.ID != connector.ClientID {
		t.Fatalf("connections of the member: %+v", listed)
	}
	write := func() harness.Answer {
		t.Helper()
		caller := p.In(ws.Workspace, tokens.AccessToken)
		return caller.JSON(t, http.MethodPost, programmes, map[string]any{"name": "Night"})
	}
	write().Wants(t, http.StatusCreated)
	narrowed, err := api.Narrow(t.Context(), id, []string{harness.ReadProgrammes})
	mustRedacted(t, err)
	if !slices.Equal(narrowed.Permissions, []string{harness.ReadProgrammes}) {
		t.Errorf("narrowed to %v", narrowed.Permissions)
	}
	write().WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	connector.List(t, tokens).Wants(t, http.StatusOK)
	_, err = api.Narrow(t.Context(), id, []string{harness.WriteProgrammes})
	refused(t, err, http.StatusBadRequest, client.Flat, "invalid_request")
	refreshed := connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	mustRedacted(t, api.End(t.Context(), id))
	connector.List(t, refreshed).Wants(t, http.StatusUnauthorized)
	connector.Refresh(t, refreshed.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	_, err = api.Narrow(t.Context(), id, []string{harness.ReadProgrammes})
	refused(t, err, http.StatusConflict, client.Flat, "conflict")
	one, err := api.Connection(t.Context(), id)
	mustRedacted(t, err)
	if one.State != "ended" || one.EndedReason != "revoked_by_administrator" || one.LastUsedAt == nil {
		t.Errorf("the ended connection: %+v", one)
	}
	for _, action := range []string{"grant.narrowed", "grant.revoked"} {
		events := allOf(t, api.AuditEvents(t.Context(), client.AuditFilter{Action: action, UserID: member.ID}))
		if len(events) != 1 || events[0].Subject != "grant:"+id || events[0].Actor != "user:"+ws.Owner.ID {
			t.Errorf("%s: %+v", action, events)
		}
	}
}

func TestCredentials_RevokedTokenAndPolicy(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Credentials
	member := ws.Member(t, harness.ReadProgrammes)
	value := p.Database.Token(t, ws.Workspace, member, harness.ReadProgrammes)
	own := allOf(t, api.Tokens(t.Context(), member.ID))
	if len(own) != 1 || own[0].User.ID != member.ID {
		t.Fatalf("tokens of the member: %+v", own)
	}
	if _, err := api.Token(t.Context(), own[0].ID); err != nil {
		mustRedacted(t, err)
	}
	p.In(ws.Workspace, value).Get(t, programmes).Wants(t, http.StatusOK)
	mustRedacted(t, api.Revoke(t.Context(), own[0].ID))
	p.In(ws.Workspace, value).Get(t, programmes).Wants(t, http.StatusUnauthorized)

	policy, err := api.Policy(t.Context())
	mustRedacted(t, err)
	unread := policy
	unread.ETag = ""
	_, err = api.SetPolicy(t.Context(), unread)
	refused(t, err, http.StatusPreconditionRequired, client.Flat, "precondition_required")
	changed := policy
	changed.Days = 3
	changed, err = api.SetPolicy(t.Context(), changed)
	mustRedacted(t, err)
	_, err = api.SetPolicy(t.Context(), policy)
	refused(t, err, http.StatusPreconditionFailed, client.Flat, "precondition_failed")
	policy.ETag = changed.ETag
	if changed.Days != 3 {
		t.Errorf("the policy has %d days", changed.Days)
	}
	changed.Days = 31
	_, err = api.SetPolicy(t.Context(), changed)
	refused(t, err, http.StatusBadRequest, client.Flat, "invalid_request")
	_, err = api.SetPolicy(t.Context(), policy)
	mustRedacted(t, err)
}

// What a rehearsal says happens to the credentials and the requests, and only with the change.
func TestRehearsals_SayWhatThenHappens(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.Client(t, ws.Workspace, harness.Bearer(ws.Token)).Credentials
	member := ws.Member(t, harness.ReadProgrammes, harness.WriteProgrammes)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	tokens := connector.Connect(t, p.Person(t, member))
	value := p.Database.Token(t, ws.Workspace, member, harness.ReadProgrammes)
	list, connection := p.In(ws.Workspace, value), harness.GrantOf(t, tokens.AccessToken)
	own := allOf(t, api.Tokens(t.Context(), member.ID))
	if len(own) != 1 {
		t.Fatalf("tokens of the member: %+v", own)
	}
	rehearse := func(change client.Change) client.RehearsedChange {
		t.Helper()
		said, err := api.Rehearse(t.Context(), change)
		mustRedacted(t, err)
		list.Get(t, programmes).Wants(t, http.StatusOK)
		connector.List(t, tokens).Wants(t, http.StatusOK)
		return said
	}
	off := rehearse(client.Change{SetLLMIntegration: &client.SetLLMIntegration{}})
	if !slices.Equal(off.Pauses.Connections, []string{connection}) || len(off.Pauses.Tokens)+len(off.Narrows) > 0 {
		t.Errorf("AI assistants off: %+v", off)
	}
	module := rehearse(client.Change{DisableModule: &client.DisableModule{Module: "programmes"}})
	if !slices.Equal(module.Pauses.Tokens, []string{own[0].ID}) {
		t.Errorf("module off: %+v", module)
	}
	less := rehearse(client.Change{SetPermissions: &client.SetPermissions{
		UserID: member.ID, Permissions: []string{harness.ReadProgrammes},
	}})
	if len(less.Narrows) != 1 || less.Narrows[0].CredentialID != connection ||
		!slices.Equal(less.Narrows[0].Loses, []string{harness.WriteProgrammes}) {
		t.Errorf("lowered permissions: %+v", less)
	}
	policy := client.ConnectorPolicy{Permissions: []string{harness.ReadProgrammes}, Platforms: []string{}, Days: 30}
	gone := rehearse(client.Change{DeleteClient: &client.DeleteClient{ClientID: connector.ClientID}})
	for what, said := range map[string]client.RehearsedChange{
		"policy": rehearse(client.Change{SetConnectorPolicy: &policy}), "client": gone,
	} {
		if !slices.Equal(said.Ends.Connections, []string{connection}) || len(said.Ends.Tokens) > 0 {
			t.Errorf("%s: %+v", what, said)
		}
	}
	removed := rehearse(client.Change{RemoveMember: &client.RemoveMember{UserID: member.ID}})
	if !slices.Equal(removed.Ends.Connections, []string{connection}) ||
		!slices.Equal(removed.Ends.Tokens, []string{own[0].ID}) || removed.Since.IsZero() {
		t.Errorf("removal: %+v", removed)
	}
	_, err := api.Rehearse(t.Context(), client.Change{RemoveMember: &client.RemoveMember{UserID: ws.Owner.ID}})
	refused(t, err, http.StatusConflict, client.Flat, "conflict")
	issuer := client.Change{DeleteTrustedIssuer: &client.DeleteTrustedIssuer{ID: connection}}
	_, err = api.Rehearse(t.Context(), issuer)
	refused(t, err, http.StatusNotFound, client.Flat, "not_found")
	_, err = api.Rehearse(t.Context(), client.Change{})
	refused(t, err, http.StatusBadRequest, client.Flat, "invalid_request")
}
