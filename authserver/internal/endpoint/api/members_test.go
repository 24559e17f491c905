package api_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// person returns a new address.
func person() string { return "person-" + uuid.NewString()[:8] + "@example.org" }

// invite invites an address to read programmes.
func (b *testEnv) invite(email string) apitest.Answer {
	b.t.Helper()
	return b.send("POST", invitations, body(email, perm.ProgrammesRead))
}

func TestMembers_AreListedChangedAndRemoved(t *testing.T) {
	b := newTestEnv(t)
	user := b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	app := b.Fixture.Connector(apitest.REST, perm.ProgrammesRead)
	connection := b.Connected(app, user)
	b.Fixture.Token(user, perm.ProgrammesRead)
	one := members + "/" + user.String()
	all, ids, _ := b.listed(members, "userId")
	at := slices.Index(ids, user.String())
	if at < 0 || all[at]["name"] != "Ada Okafor" || !strings.Contains(all[at]["email"].(string), "@example.org") ||
		all[at]["connections"] != 1.0 || all[at]["tokens"] != 1.0 || len(all[at]["permissions"].([]any)) != 2 {
		t.Errorf("the member is not listed: %v", all)
	}
	changed := b.send("PATCH", one, body("", perm.ProgrammesRead))
	b.Wants("lowered", changed, 200, "")
	b.WantsMembers("lowered", changed, map[string]any{"permissions": []any{"programmes:read:programmes"}})
	b.Wants("more than held", b.send("PATCH", one, body("", perm.ProgrammesWrite)), 403, "FORBIDDEN")
	b.Wants("removed", b.send("DELETE", one, ""), 204, "")
	b.Wants("removed twice", b.send("DELETE", one, ""), 404, "not_found")
	b.Wants("changed after", b.send("PATCH", one, body("", perm.ProgrammesRead)), 404, "not_found")
	b.Wants("no identifier", b.send("DELETE", members+"/x", ""), 404, "not_found")
	b.WantsRows("grants left", 0, `account.grants where user_id = $1 and state <> 'revoked'`, user)
	b.Wants("a refresh token of the removed member", b.Refresh(app, connection.Refresh), 400, "invalid_grant")
	b.wantEvents(1, audit.MemberPermissionsChanged, "user:"+user.String())
	b.wantEvents(1, audit.MemberRemoved, "user:"+user.String())
}

// Another person may have created the account of an address that was never proven.
func TestMembers_UnprovenMemberGetsNoFurtherPermission(t *testing.T) {
	b := newTestEnv(t)
	user := b.Fixture.Member(perm.ProgrammesRead, perm.AccountReadMembers)
	b.Fixture.Exec(`update account.users set email_proven_at = null, email_proven_by = null where id = $1`, user)
	set := func(permissions ...perm.Permission) apitest.Answer {
		return b.send("PATCH", members+"/"+user.String(), body("", permissions...))
	}
	more := []perm.Permission{perm.ProgrammesRead, perm.AccountReadMembers, perm.AccountAPIAccess}
	b.Wants("more", set(more...), 409, "conflict")
	b.Wants("others", set(perm.AccountAPIAccess), 409, "conflict")
	b.Wants("the same", set(perm.ProgrammesRead, perm.AccountReadMembers), 200, "")
	b.Wants("fewer", set(perm.ProgrammesRead), 200, "")
	b.WantsRows("with the permissions that were set", 1,
		`account.memberships where user_id = $1 and permissions = '{programmes:read:programmes}'`, user)
	b.Fixture.Exec(`update account.users set email_proven_at = now(), email_proven_by = 'operator' where id = $1`, user)
	b.Wants("more after the proof", set(more...), 200, "")
}

func TestInvitations_AreCreatedListedReplacedAndWithdrawn(t *testing.T) {
	b := newTestEnv(t)
	email := person()
	first := b.invite(strings.ToUpper(email[:1]) + email[1:])
	if first.Status != 201 || first.Text("email") != email ||
		!strings.HasPrefix(first.Text("url"), apitest.AppURL+"/invitation?token=alm_inv_") ||
		first.Header.Get("Location") != b.base+invitations+"/"+first.Text("id") {
		t.Fatal(b.Explain(first))
	}
	second := b.invite(email)
	all, ids, _ := b.listed(invitations, "id")
	if !slices.Equal(ids, []string{second.Text("id")}) || all[0]["url"] != nil {
		t.Errorf("%v", all)
	}
	one := invitations + "/" + second.Text("id")
	b.Wants("withdrawn", b.send("DELETE", one, ""), 204, "")
	b.Wants("withdrawn twice", b.send("DELETE", one, ""), 404, "not_found")
	b.Wants("no identifier", b.send("DELETE", invitations+"/x", ""), 404, "not_found")
}

func TestInvitations_BadRequestsAreRefused(t *testing.T) {
	b := newTestEnv(t)
	read, email := perm.ProgrammesRead, person()
	for what, content := range map[string]string{
		"no address":         body("", read),
		"bad address":        body("sam", read),
		"a name":             body("Sam <"+email+">", read),
		"two lines":          body(email+"\nBcc: x@example.org", read),
		"no permissions":     body(email),
		"unknown permission": body(email, "programmes:delete:all"),
		"no JSON":            "{",
		"null":               "null",
		"wrong type":         `{"email":1,"permissions":[]}`,
		"twice":              `{"email":"a@example.org","email":"b@example.org"}`,
		"empty":              "",
	} {
		b.Wants(what, b.send("POST", invitations, content), 400, "invalid_request")
	}
	b.Wants("not held", b.send("POST", invitations, body(email, perm.EngageReadForms)), 403, "FORBIDDEN")
	large := `{"email":"` + strings.Repeat("x", 64<<10) + `"}`
	b.Wants("too large", b.send("POST", invitations, large), 413, "invalid_request")
	own := members + "/" + b.manager.String()
	b.Wants("PATCH without permissions", b.send("PATCH", own, body("")), 400, "invalid_request")
	b.Fixture.Exec(`update account.users set email = $2 where id = $1`, b.manager, email)
	b.Wants("a member", b.invite(strings.ToUpper(email)), 409, "conflict")
	b.WantsRows("invitations", 0, `account.invitations where tenant_id = $1`, b.Fixture.WorkspaceID)
}

func TestInvitations_AreLimited(t *testing.T) {
	b := newTestEnv(t)
	email, began := person(), time.Now()
	for i := range 5 {
		b.Wants("a message", b.invite(email), 201, "")
		b.Wants("refused", b.invite(fmt.Sprintf("bad %d", i)), 400, "invalid_request")
	}
	sixth := b.invite(email)
	b.Wants("the sixth to one address", sixth, 429, "rate_limited")
	wait, err := strconv.Atoi(sixth.Header.Get("Retry-After"))
	day := 86_400
	if policy := sixth.Header.Get("RateLimit-Policy"); err != nil || wait > day ||
		wait < day-1-int(time.Since(began).Seconds()) || policy != `"invitations-per-address";q=5;w=86400` {
		t.Errorf("want a day\n%s", b.Explain(sixth))
	}
	b.Wants("another address", b.invite(person()), 201, "")
}

func TestMembers_EachCallNeedsItsPermission(t *testing.T) {
	b := newTestEnv(t)
	read := b.Fixture.Token(b.manager, perm.AccountAPIAccess, perm.AccountReadMembers)
	write := b.Fixture.Token(b.manager, perm.AccountAPIAccess, perm.AccountWriteMembers, perm.ProgrammesRead)
	noAPI := b.Fixture.Token(b.manager, perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead)
	for _, path := range []string{members, invitations} {
		b.Wants("write alone reads", b.as(write, "GET", path, ""), 403, "FORBIDDEN")
		b.Wants("read", b.as(read, "GET", path, ""), 200, "")
		b.Wants("without API access", b.as(noAPI, "GET", path, ""), 403, "FORBIDDEN")
	}
	one := members + "/" + b.Fixture.Member(perm.ProgrammesRead).String()
	for _, token := range []credential.Secret{read, noAPI} {
		b.Wants("PATCH", b.as(token, "PATCH", one, "{"), 403, "FORBIDDEN")
		b.Wants("DELETE", b.as(token, "DELETE", one, ""), 403, "FORBIDDEN")
		b.Wants("POST", b.as(token, "POST", invitations, "{"), 403, "FORBIDDEN")
		b.Wants("withdraw", b.as(token, "DELETE", invitations+"/"+uuid.NewString(), ""), 403, "FORBIDDEN")
	}
	b.Wants("write", b.as(write, "POST", invitations, body(person(), perm.ProgrammesRead)), 201, "")
}

// Contract, sections 5 and 7: the user and the credential must both hold what is given.
func TestMembers_CannotGiveWhatUserOrTokenLacks(t *testing.T) {
	b := newTestEnv(t)
	wide := b.Fixture.Token(b.manager, append(slices.Clone(held), perm.ProgrammesWrite)...)
	narrow := b.Fixture.Token(b.manager, perm.AccountAPIAccess, perm.AccountReadMembers, perm.AccountWriteMembers)
	one := members + "/" + b.Fixture.Member(perm.EngageReadForms).String()
	for what, c := range map[string]struct {
		token credential.Secret
		gives perm.Permission
	}{"the user lacks it": {wide, perm.ProgrammesWrite}, "the token lacks it": {narrow, perm.ProgrammesRead}} {
		client := confidential(fields{"requiredPermissions": []perm.Permission{c.gives}})
		missing := "Missing: " + string(c.gives)
		b.forbidden(what+": client", missing, b.as(c.token, "POST", clients, client))
		b.forbidden(what+": invitation", missing, b.as(c.token, "POST", invitations, body(person(), c.gives)))
		b.forbidden(what+": member", missing, b.as(c.token, "PATCH", one, body("", perm.EngageReadForms, c.gives)))
	}
	own := body("", append(slices.Clone(held), perm.ProgrammesWrite)...)
	b.forbidden("themselves", "Missing: ", b.as(wide, "PATCH", members+"/"+b.manager.String(), own))
	b.Wants("both hold it", b.as(wide, "PATCH", one, body("", perm.EngageReadForms, perm.ProgrammesRead)), 200, "")
}

func TestLists_Pages(t *testing.T) {
	b := newTestEnv(t)
	everyPage := func(path, member string) (all []string) {
		t.Helper()
		for query, more := "?limit=1", true; more; {
			_, texts, next := b.listed(path+query, member)
			all = append(all, texts...)
			query, more = "?limit=1&cursor="+next, next != ""
			if len(texts) > 1 {
				t.Fatalf("a page of %d", len(texts))
			}
		}
		return all
	}
	for range 3 {
		b.Fixture.Member(perm.ProgrammesRead)
	}
	ids := everyPage(members, "userId")
	slices.Sort(ids)
	if len(ids) != 4 || len(slices.Compact(ids)) != 4 {
		t.Errorf("%v", ids)
	}
	var want []string
	for range 3 {
		email := person()
		b.Wants("invitation", b.invite(email), 201, "")
		want = append([]string{email}, want...)
	}
	b.Equal("invitations", everyPage(invitations, "email"), want)
	_, _, foreign := b.listed(members+"?limit=1", "userId")
	for what, path := range map[string]string{
		"a cursor of another list": invitations + "?cursor=" + foreign,
		"an unknown field":         members + "?fields=userId,url",
		"a link":                   invitations + "?fields=url",
		"no limit":                 invitations + "?limit=0",
	} {
		b.Wants(what, b.send("GET", path, ""), 400, "invalid_request")
	}
	if one, _, _ := b.listed(members+"?limit=1&fields=userId", "userId"); len(one[0]) != 1 || one[0]["userId"] == nil {
		t.Errorf("%v", one)
	}
}

// A refused write stores no answer, and changes nothing.
func TestMembers_RefusedWriteMayBeRepeated(t *testing.T) {
	b := newTestEnv(t)
	other := members + "/" + b.Fixture.Member(perm.ProgrammesRead).String()
	own, lower := members+"/"+b.manager.String(), body("", perm.AccountAPIAccess)
	b.Wants("the last manager", b.once("a", "DELETE", own, ""), 409, "conflict")
	b.Wants("lowers themselves", b.once("e", "PATCH", own, lower), 409, "conflict")
	b.Fixture.Member(perm.AccountWriteMembers)
	b.Wants("lowers themselves beside one who cannot see members", b.once("e", "PATCH", own, lower), 409, "conflict")
	b.Wants("no such member", b.once("b", "DELETE", members+"/x", ""), 404, "not_found")
	long := strings.Repeat(uuid.NewString(), 100)
	b.Wants("a long path", b.once("d", "DELETE", members+"/"+long, ""), 404, "not_found")
	b.Wants("more than held", b.once("c", "PATCH", other, body("", perm.EngageWriteForms)), 403, "FORBIDDEN")
	b.WantsRows("stored answers", 0, `account.idempotency_keys where tenant_id = $1`, b.Fixture.WorkspaceID)
}
