package api_test

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	connections = "/connections"
	tokens      = "/tokens"
	events      = "/audit-events"
	policy      = "/connector-policy"
)

// connect connects a member to a connector of /v1 that may read and write programmes.
func (b *testEnv) connect(user uuid.UUID) (apitest.Connection, func() apitest.Answer) {
	b.t.Helper()
	app := b.Fixture.Connector(apitest.REST, perm.ProgrammesRead, perm.ProgrammesWrite)
	held := b.Connected(app, user)
	return held, func() apitest.Answer { return b.Refresh(app, held.Refresh) }
}

func narrowTo(permissions ...perm.Permission) string { return body("", permissions...) }

func TestConnections_AreListedAndRead(t *testing.T) {
	b := newTestEnv(t)
	user := b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	first, _ := b.connect(user)
	second, _ := b.connect(user)
	other, _ := b.connect(b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite))
	b.Wants("end", b.send("DELETE", connections+"/"+second.Grant.ID.String(), ""), 204, "")
	approved, _ := b.Consent(b.Fixture.Connector(apitest.REST, perm.ProgrammesRead), user)
	for query, want := range map[string][]string{
		"":                            {other.Grant.ID.String(), second.Grant.ID.String(), first.Grant.ID.String()},
		"?userId=" + user.String():    {second.Grant.ID.String(), first.Grant.ID.String()},
		"?state=active":               {other.Grant.ID.String(), first.Grant.ID.String()},
		"?state=ended":                {second.Grant.ID.String()},
		"?userId=" + uuid.NewString(): nil,
		"?clientId=" + first.Grant.ClientID.String():             {first.Grant.ID.String()},
		"?state=active&userId=" + user.String():                  {first.Grant.ID.String()},
		"?state=ended&clientId=" + other.Grant.ClientID.String(): nil,
	} {
		if _, ids, _ := b.listed(connections+query, "id"); !slices.Equal(ids, want) {
			t.Errorf("connections%s: %v, want %v", query, ids, want)
		}
	}
	one := b.send("GET", connections+"/"+first.Grant.ID.String(), "")
	b.Wants("read", one, 200, "")
	b.WantsMembers("read", one, map[string]any{
		"id":          first.Grant.ID.String(),
		"client":      map[string]any{"id": first.Grant.ClientID.String(), "name": "Claude"},
		"permissions": []any{"programmes:read:programmes", "programmes:write:programmes"},
		"resource":    apitest.REST,
		"state":       "active",
		"approvedBy":  "user",
	})
	if reason, there := one.Object()["endedReason"]; !there || reason != nil {
		t.Errorf("a live connection has an endedReason\n%s", b.Explain(one))
	}
	if who, _ := one.Object()["user"].(map[string]any); who["id"] != user.String() || who["name"] != "Ada Okafor" ||
		!strings.Contains(who["email"].(string), "@example.org") {
		t.Errorf("the user of the connection\n%s", b.Explain(one))
	}
	ended := b.send("GET", connections+"/"+second.Grant.ID.String(), "")
	b.WantsMembers("an ended one", ended, map[string]any{"state": "ended", "endedReason": "revoked_by_administrator"})
	b.Wants("an approval that was not used", b.send("GET", connections+"/"+approved.ID.String(), ""), 404, "not_found")
	b.Wants("unknown", b.send("GET", connections+"/"+uuid.NewString(), ""), 404, "not_found")
	b.Wants("no identifier", b.send("GET", connections+"/x", ""), 404, "not_found")
	for _, bad := range []string{"?userId=x", "?clientId=", "?state=pending", "?limit=0", "?cursor=x"} {
		b.Wants(bad, b.send("GET", connections+bad, ""), 400, "invalid_request")
	}
}

// Each page continues where the last one ended, also among connections that were made at the same time.
func TestConnections_PagesContinue(t *testing.T) {
	b := newTestEnv(t)
	user := b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	for range 5 {
		b.connect(user)
		b.Fixture.Token(user, perm.ProgrammesRead)
	}
	for path, table := range map[string]string{connections: "grants", tokens: "personal_access_tokens"} {
		b.Fixture.Exec(`update account.`+table+` set created_at = now() - interval '1 hour' where user_id = $1`, user)
		query := "?limit=2&userId=" + user.String()
		var all []string
		for next := ""; ; {
			at := ""
			if next != "" {
				at = "&cursor=" + next
			}
			var ids []string
			_, ids, next = b.listed(path+query+at, "id")
			all = append(all, ids...)
			if next == "" {
				break
			}
			b.Wants("a cursor of another list", b.send("GET", path+"?cursor="+next, ""), 400, "invalid_request")
		}
		slices.Sort(all)
		if listed := len(all); listed != 5 || len(slices.Compact(all)) != 5 {
			t.Errorf("%s: %d on all pages, want 5", path, len(all))
		}
	}
}

func TestConnections_AreNarrowedAndEnded(t *testing.T) {
	b := newTestEnv(t)
	user := b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	held, refresh := b.connect(user)
	one := connections + "/" + held.Grant.ID.String()
	for what, content := range map[string]string{
		"more":                 narrowTo(perm.ProgrammesRead, perm.EngageReadForms),
		"none":                 narrowTo(),
		"a write without read": narrowTo(perm.ProgrammesWrite),
		"unknown":              narrowTo(perm.ProgrammesRead, "programmes:delete:all"),
		"no JSON":              "{",
		"empty":                "",
	} {
		b.Wants(what, b.send("PATCH", one, content), 400, "invalid_request")
	}
	b.Wants("the same", b.send("PATCH", one, narrowTo(perm.ProgrammesRead, perm.ProgrammesWrite)), 200, "")
	b.WantsRows("narrowed", 0, `account.audit_events where action = $1 and subject = $2`, string(audit.GrantNarrowed),
		"grant:"+held.Grant.ID.String())
	narrowed := b.twice(uuid.NewString(), "PATCH", one, narrowTo(perm.ProgrammesRead))
	b.WantsMembers("narrowed", narrowed, map[string]any{"permissions": []any{"programmes:read:programmes"}})
	b.wantEvents(1, audit.GrantNarrowed, "grant:"+held.Grant.ID.String())
	b.WantsRows("ends later than before", 1, `account.grants where id = $1 and ends_at = $2 and narrowed_at is null`,
		held.Grant.ID, held.Grant.Ends)
	b.Wants("back to what it had", b.send("PATCH", one, narrowTo(perm.ProgrammesRead, perm.ProgrammesWrite)), 400,
		"invalid_request")
	answer := refresh()
	if answer.Status != 200 || answer.Text("scope") != "programmes:read:programmes" {
		t.Errorf("a refresh after it was narrowed\n%s", b.Explain(answer))
	}
	b.Wants("end", b.send("DELETE", one, ""), 204, "")
	b.Wants("end again", b.send("DELETE", one, ""), 204, "")
	b.wantEvents(1, audit.GrantRevoked, "grant:"+held.Grant.ID.String())
	b.Wants("narrow an ended one", b.send("PATCH", one, narrowTo(perm.ProgrammesRead)), 409, "conflict")
	b.Wants("refresh of an ended one", refresh(), 400, "invalid_grant")
}

// Members see, narrow and end their own credentials; those of others need the permissions for members.
func TestCredentials_OfOthersNeedPermissionsOfMembers(t *testing.T) {
	b := newTestEnv(t)
	held, _ := b.connect(b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite))
	b.Fixture.Token(held.Grant.UserID, perm.ProgrammesRead)
	_, theirs, _ := b.listed(tokens+"?userId="+held.Grant.UserID.String(), "id")
	developer := b.Fixture.Member(perm.AccountAPIAccess, perm.ProgrammesRead, perm.ProgrammesWrite)
	own, _ := b.connect(developer)
	reader := b.Fixture.Member(perm.AccountAPIAccess, perm.AccountReadMembers)
	writer := b.Fixture.Member(perm.AccountAPIAccess, perm.AccountWriteMembers)
	writes := b.Fixture.Token(writer, perm.AccountAPIAccess, perm.AccountWriteMembers)
	unseen, _ := b.connect(held.Grant.UserID)
	hidden := connections + "/" + unseen.Grant.ID.String()
	b.Wants("a writer reads", b.as(writes, "GET", hidden, ""), 404, "not_found")
	b.Wants("a writer ends", b.as(writes, "DELETE", hidden, ""), 204, "")
	for what, c := range map[string]struct {
		token        credential.Secret
		read, change int
		code         string
	}{
		"developer": {b.Fixture.Token(developer, perm.AccountAPIAccess), 404, 404, "not_found"},
		"reader":    {b.Fixture.Token(reader, perm.AccountAPIAccess, perm.AccountReadMembers), 200, 403, "FORBIDDEN"},
	} {
		for _, one := range []string{connections + "/" + held.Grant.ID.String(), tokens + "/" + theirs[0]} {
			read := ""
			if c.read != 200 {
				read = c.code
			}
			b.Wants(what+" reads "+one, b.as(c.token, "GET", one, ""), c.read, read)
			b.Wants(what+" ends "+one, b.as(c.token, "DELETE", one, ""), c.change, c.code)
		}
		b.Wants(what+" narrows", b.as(c.token, "PATCH", connections+"/"+held.Grant.ID.String(),
			narrowTo(perm.ProgrammesRead)), c.change, c.code)
	}
	b.token = b.Fixture.Token(developer, perm.AccountAPIAccess)
	if _, ids, _ := b.listed(connections, "id"); !slices.Equal(ids, []string{own.Grant.ID.String()}) {
		t.Errorf("a member without account:read:members lists %v", ids)
	}
	for _, path := range []string{connections, tokens, events} {
		b.Wants(path+" of another", b.send("GET", path+"?userId="+held.Grant.UserID.String(), ""), 403, "FORBIDDEN")
	}
	ownPath := connections + "/" + own.Grant.ID.String()
	b.Wants("narrow the own", b.send("PATCH", ownPath, narrowTo(perm.ProgrammesRead)), 200, "")
	b.Wants("end the own", b.send("DELETE", ownPath, ""), 204, "")
	b.WantsRows("ended by the user", 1, `account.grants where id = $1 and revoke_reason = 'disconnected_by_user'`,
		own.Grant.ID)
	elsewhere := baseOf(uuid.New())
	b.Wants("in another workspace", b.Send("GET", elsewhere+ownPath, "", apitest.Bearer(b.token)...), 403, "FORBIDDEN")
}

func TestTokens_AreListedReadAndRevoked(t *testing.T) {
	b := newTestEnv(t)
	user := b.Fixture.Member(perm.ProgrammesRead, perm.AccountAPIAccess)
	value := b.Fixture.Token(user, perm.AccountAPIAccess)
	all, ids, _ := b.listed(tokens+"?userId="+user.String(), "id")
	if len(all) != 1 || all[0]["name"] != "a token" || all[0]["lastUsedAt"] != nil {
		t.Fatalf("tokens: %v", all)
	}
	one := tokens + "/" + ids[0]
	answer := b.send("GET", one, "")
	b.Wants("read", answer, 200, "")
	if shown := slices.Sorted(maps.Keys(answer.Object())); !slices.Equal(shown, []string{
		"createdAt", "expiresAt", "id", "lastUsedAt", "name", "permissions", "user",
	}) {
		t.Errorf("a token is shown with %v", shown)
	}
	b.Wants("revoke", b.send("DELETE", one, ""), 204, "")
	b.Wants("revoke again", b.send("DELETE", one, ""), 404, "not_found")
	b.Wants("read a revoked one", b.send("GET", one, ""), 404, "not_found")
	b.Wants("no identifier", b.send("GET", tokens+"/x", ""), 404, "not_found")
	b.Wants("userId", b.send("GET", tokens+"?userId=x", ""), 400, "invalid_request")
	if used := b.as(value, "GET", clients, ""); used.Status != 403 || used.Text("message") != "Forbidden" {
		t.Errorf("a revoked token\n%s", b.Explain(used))
	}
	b.wantEvents(1, audit.TokenRevoked, "token:"+ids[0])
	b.WantsRows("revoked by an administrator", 1,
		`account.personal_access_tokens where id = $1 and revoke_reason = 'revoked_by_administrator'`, ids[0])
}

func TestAuditEvents_AreListed(t *testing.T) {
	b := newTestEnv(t)
	user := b.Fixture.Member(perm.ProgrammesRead, perm.AccountAPIAccess)
	begin := time.Now().UTC().Add(-time.Second).Format(time.RFC3339)
	b.Wants("lower", b.send("PATCH", members+"/"+user.String(), body("", perm.ProgrammesRead)), 200, "")
	b.Wants("invite", b.invite(person()), 201, "")
	b.Wants("raise", b.send("PATCH", members+"/"+user.String(),
		body("", perm.ProgrammesRead, perm.AccountAPIAccess)), 200, "")
	const changed, invited = audit.MemberPermissionsChanged, audit.InvitationCreated
	for query, want := range map[string][]string{
		"":                                      {changed, invited, changed},
		"?after=" + begin:                       {changed, invited, changed},
		"?after=2999-01-01T00:00:00Z":           nil,
		"?action=" + invited:                    {invited},
		"?userId=" + user.String():              {changed, changed},
		"?userId=" + user.String() + "&limit=1": {changed},
		"?action=" + audit.GrantRevoked:         nil,
	} {
		if _, actions, _ := b.listed(events+query, "action"); !slices.Equal(actions, want) {
			t.Errorf("audit-events%s: %v, want %v", query, actions, want)
		}
	}
	all, _, _ := b.listed(events+"?action="+invited, "id")
	since := "?after=" + url.QueryEscape(all[0]["at"].(string))
	if _, actions, _ := b.listed(events+since, "action"); !slices.Equal(actions, []string{changed, invited}) {
		t.Errorf("the events since the time of the second one: %v", actions)
	}
	if all[0]["actor"] != "user:"+b.manager.String() || all[0]["userId"] != b.manager.String() ||
		!strings.HasPrefix(all[0]["subject"].(string), "invitation:") || all[0]["detail"] == nil ||
		all[0]["at"] == nil {
		t.Errorf("an event: %v", all[0])
	}
	for _, bad := range []string{"?after=yesterday", "?action=none", "?action=", "?userId=1", "?cursor=x"} {
		b.Wants(bad, b.send("GET", events+bad, ""), 400, "invalid_request")
	}
	b.token = b.Fixture.Token(user, perm.AccountAPIAccess)
	if _, actions, _ := b.listed(events, "action"); !slices.Equal(actions, []string{changed, changed}) {
		t.Errorf("a member without account:read:members sees %v", actions)
	}
}

// At most 4 pages of logs are read at once. Another reader is refused after 3 seconds.
func TestAuditEvents_ReadsAreLimited(t *testing.T) {
	b := ownTestEnv(t, func(c *app.Config, _ string) { c.StoreWait = await.Long }) // for the lock
	release := b.Lock("lock table account.audit_events in access exclusive mode")
	const atOnce = 4
	answers := make(chan apitest.Answer, atOnce)
	for range atOnce {
		go func() { answers <- b.send("GET", events, "") }()
	}
	await.True(t, "the first ones read", func() bool {
		return b.Count(`select count(*) from `+testkit.Locks+`
			where relation = 'account.audit_events'::regclass and not granted`) == atOnce
	})
	refused := b.send("GET", events, "")
	release()
	b.Wants("another reader", refused, 429, "rate_limited")
	b.WantsHeader("another reader", refused, "Retry-After", "3")
	for range atOnce {
		b.Wants("one of the first", <-answers, 200, "")
	}
}

func TestConnectorPolicy_IsReadAndReplaced(t *testing.T) {
	b := newTestEnv(t)
	held, refresh := b.connect(b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite))
	read := b.send("GET", policy, "")
	b.Wants("read", read, 200, "")
	tag := read.Header.Get("ETag")
	const narrower = `{"permissions":["programmes:read:programmes"],"platforms":["claude","other"],"days":7}`
	b.Wants("without If-Match", b.send("PUT", policy, narrower), 428, "precondition_required")
	b.Wants("stale", b.send("PUT", policy, narrower, "If-Match", `"x"`), 412, "precondition_failed")
	for what, content := range map[string]string{
		"no permission":         `{"permissions":[],"platforms":["claude"],"days":7}`,
		"permission of account": `{"permissions":["account:read:members"],"platforms":["claude"],"days":7}`,
		"platform":              `{"permissions":["programmes:read:programmes"],"platforms":["x"],"days":7}`,
		"days":                  `{"permissions":["programmes:read:programmes"],"platforms":["claude"],"days":31}`,
		"no days":               `{"permissions":["programmes:read:programmes"],"platforms":["claude"]}`,
		"no JSON":               `{`,
	} {
		b.Wants(what, b.send("PUT", policy, content, "If-Match", tag), 400, "invalid_request")
	}
	replaced := b.send("PUT", policy, narrower, "If-Match", tag)
	b.Wants("replaced", replaced, 200, "")
	b.WantsMembers("replaced", replaced, map[string]any{
		"permissions": []any{"programmes:read:programmes"}, "platforms": []any{"claude", "other"}, "days": 7.0,
	})
	b.Wants("the tag before", b.send("PUT", policy, narrower, "If-Match", tag), 412, "precondition_failed")
	tag = replaced.Header.Get("ETag")
	if read = b.send("GET", policy, ""); read.Header.Get("ETag") != tag || read.Body != replaced.Body {
		t.Errorf("read again\n%s", b.Explain(read))
	}
	if again := b.send("GET", policy, "", "If-None-Match", tag); again.Status != 304 {
		t.Errorf("not modified\n%s", b.Explain(again))
	}
	b.wantEvents(1, audit.ConnectorPolicyChanged, "tenant:"+b.Fixture.WorkspaceID.String())
	if answer := refresh(); answer.Text("scope") != "programmes:read:programmes" {
		t.Errorf("a refresh under the policy\n%s", b.Explain(answer))
	}
	none := `{"permissions":["programmes:read:programmes"],"platforms":[],"days":7}`
	b.Wants("no platform", b.send("PUT", policy, none, "If-Match", "*"), 200, "")
	b.Wants("refresh after all ended", refresh(), 400, "invalid_grant")
	b.WantsMembers("ended", b.send("GET", connections+"/"+held.Grant.ID.String(), ""),
		map[string]any{"state": "ended", "endedReason": "connector_policy"})
	b.token = b.Fixture.Token(b.Fixture.Member(perm.AccountAPIAccess), perm.AccountAPIAccess)
	b.Wants("read by a developer", b.send("GET", policy, ""), 200, "")
	b.Wants("replaced by a developer", b.send("PUT", policy, narrower, "If-Match", "*"), 403, "FORBIDDEN")
}
