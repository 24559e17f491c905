package api_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A membersEnv is a server with a manager, who holds what managing members needs and programmes:read:programmes.
type membersEnv struct {
	*apitest.Server
	t       *testing.T
	manager uuid.UUID
	token   credential.Secret
	base    string
}

var held = []perm.Permission{
	perm.AccountAPIAccess, perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead,
}

func newMembersEnv(t *testing.T) *membersEnv {
	t.Helper()
	b := &membersEnv{Server: apitest.Own(t), t: t}
	b.manager = b.Fixture.Member(held...)
	b.token = b.Fixture.Token(b.manager, held...)
	b.base = "/v1/account/tenants/" + b.Fixture.WorkspaceID.String()
	return b
}

// as sends a request with a bearer; a body is sent as JSON.
func (b *membersEnv) as(token credential.Secret, method, path, body string) apitest.Answer {
	b.t.Helper()
	headers := apitest.Bearer(token)
	if body != "" {
		headers = append(headers, "Content-Type", "application/json")
	}
	return b.Send(method, b.base+path, body, headers...)
}

func (b *membersEnv) send(method, path, body string) apitest.Answer {
	b.t.Helper()
	return b.as(b.token, method, path, body)
}

func (b *membersEnv) wants(what string, answer apitest.Answer, status int, code string) {
	b.t.Helper()
	nested, _ := answer.Object()["error"].(map[string]any)
	if status == 403 {
		if answer.Status != 403 || nested["code"] != code {
			b.t.Errorf("%s: %d %s, want 403 %s", what, answer.Status, answer.Body, code)
		}
		return
	}
	if answer.Status != status || answer.Text("error") != code || (code != "") != (answer.Text(
		"error_description") != "") {
		b.t.Errorf("%s: %d %s, want %d %s", what, answer.Status, answer.Body, status, code)
	}
}

func body(email string, permissions ...perm.Permission) string {
	content := map[string]any{"permissions": perm.NewSet(permissions...).Strings()}
	if email != "" {
		content["email"] = email
	}
	out, _ := json.Marshal(content) // strings always encode
	return string(out)
}

func (b *membersEnv) list(path string) []map[string]any {
	b.t.Helper()
	answer := b.send("GET", path, "")
	var out struct {
		Data []map[string]any
		Meta struct{ Count int }
	}
	if err := json.Unmarshal([]byte(answer.Body), &out); err != nil || answer.Status != 200 ||
		out.Meta.Count != len(out.Data) || out.Data == nil {
		b.t.Fatalf("%s: %d %s", path, answer.Status, answer.Body)
	}
	return out.Data
}

func TestMembers_AreListedChangedAndRemoved(t *testing.T) {
	b := newMembersEnv(t)
	user := b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	app := b.Fixture.Connector(apitest.REST, perm.ProgrammesRead)
	connection := b.Connected(app, user)
	b.Fixture.Token(user, perm.ProgrammesRead)
	one := "/members/" + user.String()
	found := false
	for _, m := range b.list("/members") {
		if m["userId"] == user.String() {
			found = m["name"] == "Ada Okafor" && strings.Contains(m["email"].(string), "@example.org") &&
				m["connections"] == 1.0 && m["tokens"] == 1.0 && len(m["permissions"].([]any)) == 2
		}
	}
	if !found {
		t.Errorf("the member is not listed: %v", b.list("/members"))
	}
	changed := b.send("PATCH", one, body("", perm.ProgrammesRead))
	b.wants("lowered", changed, 200, "")
	if permissions, _ := changed.Object()["permissions"].([]any); len(permissions) != 1 {
		t.Errorf("%s", changed.Body)
	}
	b.wants("more than held", b.send("PATCH", one, body("", perm.ProgrammesWrite)), 403, "FORBIDDEN")
	b.wants("removed", b.send("DELETE", one, ""), 204, "")
	b.wants("removed twice", b.send("DELETE", one, ""), 404, "not_found")
	b.wants("changed after", b.send("PATCH", one, body("", perm.ProgrammesRead)), 404, "not_found")
	b.wants("no identifier", b.send("DELETE", "/members/x", ""), 404, "not_found")
	if n := b.Count(`select count(*) from account.grants where user_id = $1 and state <> 'revoked'`, user); n != 0 {
		t.Errorf("%d grants are left", n)
	}
	if used := b.Refresh(app, connection.Refresh); used.Status != 400 {
		t.Errorf("a refresh token of the removed member: %d %s", used.Status, used.Body)
	}
	for action, want := range map[string]int{"changed": 1, "removed": 1} {
		if n := b.Count(`select count(*) from account.audit_events where action like 'member.%' || $1 and user_id = $2
			and actor = 'user:' || $3 and request_id <> ''`, action, user, b.manager.String()); n != want {
			t.Errorf("%d events %s", n, action)
		}
	}
}

func TestMembers_LastHolderStays(t *testing.T) {
	b := newMembersEnv(t)
	own := "/members/" + b.manager.String()
	b.wants("removes themselves", b.send("DELETE", own, ""), 409, "conflict")
	b.wants("lowers themselves", b.send("PATCH", own, body("", perm.AccountAPIAccess)), 409, "conflict")
	other := b.Fixture.Member(perm.AccountWriteMembers)
	b.wants("lowers themselves beside one who cannot see members",
		b.send("PATCH", own, body("", perm.AccountAPIAccess)), 409, "conflict")
	b.Fixture.Exec(`update account.memberships set permissions = permissions || '{account:read:members}'
		where user_id = $1`, other)
	b.wants("lowers themselves beside another", b.send("PATCH", own, body("", perm.AccountAPIAccess)), 200, "")
	b.wants("afterwards", b.send("DELETE", "/members/"+other.String(), ""), 403, "FORBIDDEN")
}

// Another person may have created the account of an address that was never proven.
func TestMembers_UnprovenMemberGetsNoFurtherPermission(t *testing.T) {
	b := newMembersEnv(t)
	user := b.Fixture.Member(perm.ProgrammesRead, perm.AccountReadMembers)
	b.Fixture.Exec(`update account.users set email_proven_at = null, email_proven_by = null where id = $1`, user)
	one := "/members/" + user.String()
	more := body("", perm.ProgrammesRead, perm.AccountReadMembers, perm.AccountAPIAccess)
	b.wants("more", b.send("PATCH", one, more), 409, "conflict")
	b.wants("others", b.send("PATCH", one, body("", perm.AccountAPIAccess)), 409, "conflict")
	b.wants("the same", b.send("PATCH", one, body("", perm.ProgrammesRead, perm.AccountReadMembers)), 200, "")
	b.wants("fewer", b.send("PATCH", one, body("", perm.ProgrammesRead)), 200, "")
	if n := b.Count(`select count(*) from account.memberships where user_id = $1
		and permissions = '{programmes:read:programmes}'`, user); n != 1 {
		t.Error("the member's permissions are not those that were set")
	}
	b.Fixture.Exec(`update account.users set email_proven_at = now(), email_proven_by = 'operator' where id = $1`, user)
	b.wants("more after the proof", b.send("PATCH", one, more), 200, "")
}

func TestInvitations_AreCreatedListedReplacedAndWithdrawn(t *testing.T) {
	b := newMembersEnv(t)
	first := b.send("POST", "/invitations", body("Sam@example.org", perm.ProgrammesRead))
	link, err := url.Parse(first.Text("url"))
	if err != nil || first.Status != 201 || first.Text("email") != "sam@example.org" ||
		!strings.HasPrefix(first.Text("url"), apitest.AppURL+"/invitation?token=alm_inv_") ||
		first.Header.Get("Location") != b.base+"/invitations/"+first.Text("id") {
		t.Fatalf("%d %v %s", first.Status, first.Header, first.Body)
	}
	second := b.send("POST", "/invitations", body("sam@example.org", perm.ProgrammesRead))
	all := b.list("/invitations")
	if len(all) != 1 || all[0]["id"] != second.Text("id") || all[0]["url"] != nil {
		t.Errorf("%v", all)
	}
	one := "/invitations/" + second.Text("id")
	b.wants("withdrawn", b.send("DELETE", one, ""), 204, "")
	b.wants("withdrawn twice", b.send("DELETE", one, ""), 404, "not_found")
	b.wants("no identifier", b.send("DELETE", "/invitations/x", ""), 404, "not_found")
	if strings.Contains(b.Log.String(), link.Query().Get("token")) {
		t.Error("the token is in the log")
	}
}

func TestInvitations_BadRequestsAreRefused(t *testing.T) {
	b := newMembersEnv(t)
	read := perm.ProgrammesRead
	for what, c := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"no address":         {body("", read), 400, "invalid_request"},
		"bad address":        {body("sam", read), 400, "invalid_request"},
		"a name":             {body("Sam <sam@example.org>", read), 400, "invalid_request"},
		"two lines":          {body("sam@example.org\nBcc: x@example.org", read), 400, "invalid_request"},
		"no permissions":     {body("sam@example.org"), 400, "invalid_request"},
		"unknown permission": {body("sam@example.org", "programmes:delete:all"), 400, "invalid_request"},
		"not held":           {body("sam@example.org", perm.EngageReadForms), 403, "FORBIDDEN"},
		"no JSON":            {"{", 400, "invalid_request"},
		"null":               {"null", 400, "invalid_request"},
		"wrong type":         {`{"email":1,"permissions":[]}`, 400, "invalid_request"},
		"twice":              {`{"email":"a@example.org","email":"b@example.org"}`, 400, "invalid_request"},
		"too large":          {`{"email":"` + strings.Repeat("x", 64<<10) + `"}`, 413, "invalid_request"},
	} {
		b.wants(what, b.send("POST", "/invitations", c.body), c.status, c.code)
	}
	b.wants("empty", b.send("POST", "/invitations", ""), 400, "invalid_request")
	b.wants("PATCH without permissions", b.send("PATCH", "/members/"+b.manager.String(), body("")), 400,
		"invalid_request")
	b.Fixture.Exec(`update account.users set email = 'ada@example.org' where id = $1`, b.manager)
	b.wants("a member", b.send("POST", "/invitations", body("ADA@example.org", read)), 409, "conflict")
	if n := b.Count(`select count(*) from account.invitations`); n != 0 {
		t.Errorf("%d invitations", n)
	}
}

func TestMembers_EachCallNeedsItsPermission(t *testing.T) {
	b := newMembersEnv(t)
	user := b.Fixture.Member(perm.ProgrammesRead)
	read := b.Fixture.Token(b.manager, perm.AccountAPIAccess, perm.AccountReadMembers)
	write := b.Fixture.Token(b.manager, perm.AccountAPIAccess, perm.AccountWriteMembers, perm.ProgrammesRead)
	noAPI := b.Fixture.Token(b.manager, perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead)
	narrow := b.Fixture.Token(b.manager, perm.AccountAPIAccess, perm.AccountWriteMembers)
	for _, path := range []string{"/members", "/invitations"} {
		b.wants("write alone reads", b.as(write, "GET", path, ""), 403, "FORBIDDEN")
		b.wants("read", b.as(read, "GET", path, ""), 200, "")
		b.wants("without API access", b.as(noAPI, "GET", path, ""), 403, "FORBIDDEN")
	}
	one, invitation := "/members/"+user.String(), body("sam@example.org", perm.ProgrammesRead)
	for _, token := range []credential.Secret{read, noAPI} {
		b.wants("PATCH", b.as(token, "PATCH", one, "{"), 403, "FORBIDDEN")
		b.wants("DELETE", b.as(token, "DELETE", one, ""), 403, "FORBIDDEN")
		b.wants("POST", b.as(token, "POST", "/invitations", "{"), 403, "FORBIDDEN")
		b.wants("withdraw", b.as(token, "DELETE", "/invitations/"+uuid.NewString(), ""), 403, "FORBIDDEN")
	}
	// The credential limits what its user gives.
	b.wants("a token without the permission", b.as(narrow, "POST", "/invitations", invitation), 403, "FORBIDDEN")
	b.wants("a token with it", b.as(write, "POST", "/invitations", invitation), 201, "")
	restore := b.CutPostgres()
	defer restore()
	b.wants("Postgres is down", b.send("GET", "/members", ""), 503, "temporarily_unavailable")
}
