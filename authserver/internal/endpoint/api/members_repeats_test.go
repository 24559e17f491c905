package api_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// once sends a request with an Idempotency-Key.
func (b *membersEnv) once(key, method, path, body string) apitest.Answer {
	b.t.Helper()
	headers := append(apitest.Bearer(b.token), "Idempotency-Key", key)
	if body != "" {
		headers = append(headers, "Content-Type", "application/json")
	}
	return b.Send(method, b.base+path, body, headers...)
}

// repeats checks that again is the stored answer first, marked as a repetition.
func (b *membersEnv) repeats(what string, first, again apitest.Answer) {
	b.t.Helper()
	if first.Status/100 != 2 || again.Status != first.Status || again.Body != first.Body ||
		again.Header.Get("Location") != first.Header.Get("Location") ||
		first.Header.Get("Idempotency-Replayed") != "" || again.Header.Get("Idempotency-Replayed") != "true" ||
		again.Header.Get("Cache-Control") != "no-store" {
		b.t.Errorf("%s: %d %s, then %d %s", what, first.Status, first.Body, again.Status, again.Body)
	}
}

// A repeated write takes effect once, and its link is stored sealed.
func TestMembers_RepeatedWriteTakesEffectOnce(t *testing.T) {
	b := newMembersEnv(t)
	user := b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	app := b.Fixture.Connector(apitest.REST, perm.ProgrammesRead)
	connection := b.Connected(app, user)
	wish := body("sam@example.org", perm.ProgrammesRead)
	first := b.once("a", "POST", "/invitations", wish)
	b.repeats("invitation", first, b.once("a", "POST", "/invitations", wish))
	if !strings.Contains(first.Body, "token=") {
		t.Fatalf("no link in %s", first.Body)
	}
	if n := b.Count(`select count(*) from account.idempotency_keys
		where position('token='::bytea in body) > 0`); n != 0 {
		t.Error("the link is stored in the clear")
	}
	b.wants("another body", b.once("a", "POST", "/invitations", body("kim@example.org", perm.ProgrammesRead)), 409,
		"conflict")
	b.wants("a key with a space", b.once("a b", "POST", "/invitations", wish), 400, "invalid_request")
	if n := b.Count(`select count(*) from account.invitations`); n != 1 {
		t.Errorf("%d invitations", n)
	}
	one := "/members/" + user.String()
	lower := body("", perm.ProgrammesRead)
	b.repeats("change", b.once("b", "PATCH", one, lower), b.once("b", "PATCH", one, lower))
	b.repeats("removal", b.once("b", "DELETE", one, ""), b.once("b", "DELETE", one, ""))
	if used := b.Refresh(app, connection.Refresh); used.Status != 400 {
		t.Errorf("a refresh token of the removed member: %d %s", used.Status, used.Body)
	}
	invitation := "/invitations/" + first.Text("id")
	b.repeats("withdrawal", b.once("a", "DELETE", invitation, ""), b.once("a", "DELETE", invitation, ""))
	for action, want := range map[string]int{
		audit.MemberPermissionsChanged: 1, audit.MemberRemoved: 1, audit.InvitationCreated: 1,
		audit.InvitationWithdrawn: 1,
	} {
		if n := b.Count(`select count(*) from account.audit_events where action = $1`, action); n != want {
			t.Errorf("%d events %s", n, action)
		}
	}
}

// A refused write stores no answer, and changes nothing.
func TestMembers_RefusedWriteMayBeRepeated(t *testing.T) {
	b := newMembersEnv(t)
	other := b.Fixture.Member(perm.ProgrammesRead)
	b.wants("the last manager", b.once("a", "DELETE", "/members/"+b.manager.String(), ""), 409, "conflict")
	b.wants("no such member", b.once("b", "DELETE", "/members/x", ""), 404, "not_found")
	long := ""
	for range 100 {
		long += uuid.NewString()
	}
	b.wants("a long path", b.once("d", "DELETE", "/members/"+long, ""), 404, "not_found")
	b.wants("more than held", b.once("c", "PATCH", "/members/"+other.String(), body("", perm.EngageWriteForms)), 403,
		"FORBIDDEN")
	if n := b.Count(`select count(*) from account.idempotency_keys`); n != 0 {
		t.Errorf("%d answers are stored", n)
	}
}
