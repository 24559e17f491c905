package grant_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// beforeFinish puts the database into the state of an upgrade that is not finished.
func (b *testEnv) beforeFinish() { b.fixture.Exec(`delete from account.finished_upgrades`) }

// carriesWorkspace reports whether a code or refresh token contains its workspace.
func (b *testEnv) carriesWorkspace(kind grant.TokenKind, text credential.Secret) bool {
	b.Helper()
	token, err := b.grants.Tokens.Read(kind, text.Reveal())
	testkit.Must(b, err)
	if token.WorkspaceID != uuid.Nil && token.WorkspaceID != b.fixture.WorkspaceID {
		b.Errorf("the token contains the workspace %s", token.WorkspaceID)
	}
	return token.WorkspaceID != uuid.Nil
}

// Until the upgrade is finished, a process of the previous release may have to read any code or refresh token. It can
// read only the former format.
func TestFormats_ContainWorkspaceAfterFinish(t *testing.T) {
	own := ownStores(t)
	for _, first := range []bool{false, true} {
		b := testEnvOver(t, own.fixture, own.redis)
		b.snapshotFirst = first
		b.beforeFinish()
		g, code := b.consent()
		issued := b.mustRedeem(code)
		second := b.mustRotate(issued.Refresh)
		if b.carriesWorkspace(grant.Code, code) || b.carriesWorkspace(grant.Refresh, issued.Refresh) ||
			b.carriesWorkspace(grant.Refresh, second) {
			t.Error("a token contains its workspace")
		}
		b.fixture.Exec(`insert into account.finished_upgrades (name) values ('tokens_carry_workspace')`)
		third := b.mustRotate(second) // a grant keeps its format
		if b.carriesWorkspace(grant.Refresh, third) {
			t.Error("a grant has changed its format")
		}
		b.refused("a superseded token")(b.rotate(issued.Refresh)) // G3
		b.wantRevoked(g.ID, grant.Replayed)

		g, code = b.consent()
		issued = b.mustRedeem(code)
		if !b.carriesWorkspace(grant.Code, code) || !b.carriesWorkspace(grant.Refresh, b.mustRotate(issued.Refresh)) {
			t.Error("a token does not contain its workspace")
		}
		b.refused("a used code")(b.redeem(code, b.terms())) // G1
		b.wantRevoked(g.ID, grant.CodeReused)
	}
}

// A code of the former format is bound to its approval, and its reuse revokes the grant.
func TestG1_ReusedCodeOfFormerFormatRevokesGrant(t *testing.T) {
	b := ownStores(t)
	b.beforeFinish()
	g, code := b.consent()
	wrong := b.terms()
	wrong.RedirectURI += "x"
	b.refused("a wrong redirect URI")(b.redeem(code, wrong))
	first := b.lost(b.redeemWith(code, b.terms(), someKey))
	b.again("G11: the same request", first)(b.redeemWith(code, b.terms(), someKey))
	b.refused("a used code")(b.redeemWith(code, b.terms(), otherKey))
	b.wantRevoked(g.ID, grant.CodeReused)
}

// A token of the former format whose grant does not exist is refused, like any other.
func TestFormats_UnknownGrantIsRefused(t *testing.T) {
	b := newTestEnv(t)
	text, _ := b.codec.New(grant.Refresh, grant.Key{ID: uuid.New()}, 1)
	b.refused("a token of no grant")(b.rotate(text))
}
