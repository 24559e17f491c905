package admin_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// kids returns the identifiers of the keys in a state.
func (b *testEnv) kids(state string) []string {
	b.t.Helper()
	var out []string
	for _, key := range b.list(b.do(b.t.Context(), admin.ListKeys{})) {
		if key["state"] == state {
			out = append(out, b.text(key, "kid"))
		}
	}
	return out
}

func (b *testEnv) believed(token credential.Secret) bool {
	b.t.Helper()
	if err := b.Keyring.Load(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	_, err := b.Keyring.Public().Verify(token.Reveal(), apitest.Issuer, time.Now())
	return err == nil
}

func TestKeys_AreListedRotatedAndRemoved(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	first := b.kids("current")[0]
	before := b.Connected(b.app, b.user).Access
	rotated := b.text(b.values(b.do(ctx, admin.RotateKeys{})), "kid")
	if current := b.kids("current"); len(current) != 1 || current[0] != rotated || len(b.kids("next")) != 1 ||
		b.kids("retired")[0] != first {
		t.Errorf("current %v, next %v, retired %v", current, b.kids("next"), b.kids("retired"))
	}
	if !b.believed(before) {
		t.Error("a token of the former key is refused")
	}
	b.events(audit.KeyRotated, "key:"+rotated, 1)
	after := b.Connected(b.app, b.user).Access
	got := b.values(b.do(ctx, admin.RemoveKey{KID: rotated}))
	if got["removed"] != rotated || b.kids("current")[0] != got["signing"] || b.believed(after) || !b.believed(before) {
		t.Errorf(
			"%v; the removed key's token is believed: %v, the former's: %v",
			got, b.believed(after), b.believed(before),
		)
	}
	b.events(audit.KeyRemoved, "key:"+rotated, 1)
	if got := b.values(b.do(ctx, admin.ResealKeys{})); got["resealed"] != float64(2) {
		t.Errorf("%v", got)
	}
	for _, kid := range []string{rotated, "x", ""} {
		result, err := b.do(ctx, admin.RemoveKey{KID: kid})
		b.refused("key "+kid, result, err)
	}
}

func TestKeys_WithoutMasterKeysAreOnlyListed(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	service, done, err := app.Admin(
		t.Context(),
		[]string{"ALMONER_DATABASE_URL=" + b.Fixture.Database.Authserver},
		slog.New(slog.DiscardHandler),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	if keys := b.list(service.Run(t.Context(), admin.ListKeys{})); len(keys) != 2 {
		t.Errorf("%v", keys)
	}
	result, err := service.Run(t.Context(), admin.RotateKeys{})
	b.refused("rotate", result, err)
	result, err = service.Run(t.Context(), admin.RemoveKey{KID: b.kids("current")[0]})
	b.refused("remove", result, err)
	result, err = service.Run(t.Context(), admin.ResealKeys{})
	b.refused("reseal", result, err)
	remove := admin.RemoveMember{Workspace: b.Fixture.WorkspaceID.String(), User: b.user.String()}
	if _, err := service.Run(t.Context(), remove); err != nil {
		t.Errorf("a command that needs no keys and no Redis: %v", err)
	}
}
