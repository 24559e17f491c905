package api_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestInvitations_AreLimited(t *testing.T) {
	b := newMembersEnv(t)
	for i := range 5 {
		b.wants("a message", b.send("POST", "/invitations", body("sam@example.org", perm.ProgrammesRead)), 201, "")
		b.wants("refused", b.send("POST", "/invitations", body(fmt.Sprintf("bad %d", i), perm.ProgrammesRead)), 400,
			"invalid_request")
	}
	sixth := b.send("POST", "/invitations", body("sam@example.org", perm.ProgrammesRead))
	b.wants("the sixth to one address", sixth, 429, "rate_limited")
	if wait, err := strconv.Atoi(sixth.Header.Get("Retry-After")); err != nil || wait < 86_000 || wait > 86_400 {
		t.Errorf("Retry-After: %q", sixth.Header.Get("Retry-After"))
	}
	if policy := sixth.Header.Get("RateLimit-Policy"); policy != `"invitations-per-address";q=5;w=86400` {
		t.Errorf("RateLimit-Policy: %s", policy)
	}
	for i := range 45 {
		b.wants("another address",
			b.send("POST", "/invitations", body(fmt.Sprintf("p%d@example.org", i), perm.ProgrammesRead)), 201, "")
	}
	b.wants("the 51st of an inviter", b.send("POST", "/invitations", body("q@example.org", perm.ProgrammesRead)), 429,
		"rate_limited")
	other := b.Fixture.Token(b.Fixture.Member(held...), held...)
	b.wants("another inviter", b.as(other, "POST", "/invitations", body("q@example.org", perm.ProgrammesRead)), 201, "")
}
