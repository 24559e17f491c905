package app

import (
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// The cached key set still contains the key; only Postgres knows that it was removed.
func TestRemovedKey_IsRefusedWhileCached(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, user, assisted := s.assistedBy(perm.ProgrammesRead)
	rest := s.token(claims(s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead)))
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	wants := func(what string, status int, a answer) {
		t.Helper()
		a.wants(t, status)
	}
	wants("REST", 200, s.get(listPath, as(rest, workspaceID)))
	wants("MCP", 200, s.post(assistant(assisted), initialize))

	s.Exec(`update account.signing_keys set state = 'removed' where kid = $1`, postgrestest.KeyID)
	s.get(listPath, as(rest, workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
	for _, body := range everyMessage() {
		s.post(assistant(assisted), body).wantsChallenge(t, `error="invalid_token"`)
	}
	wants("a personal access token", 200, s.get(listPath, as(pat, workspaceID)))
	wants("a personal access token at MCP", 200, s.post(assistant(pat), initialize))

	s.Exec(`delete from account.signing_keys`)
	s.get(listPath, as(rest, workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
}
