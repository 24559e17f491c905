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
	for _, key := range b.list(admin.ListKeys{}) {
		if key["state"] == state {
			out = append(out, b.text(key, "kid"))
		}
	}
	return out
}

func (b *testEnv) believed(token credential.Secret) bool {
	b.t.Helper()
	b.Must(b.Keyring.Load(b.t.Context()))
	_, err := b.Keyring.Public().Verify(token.Reveal(), apitest.Issuer, time.Now())
	return err == nil
}

func TestKeys_AreListedRotatedAndRemoved(t *testing.T) {
	b := ownTestEnv(t)
	first := b.kids("current")[0]
	before := b.connected().Access
	rotated := b.text(b.values(admin.RotateKeys{}), "kid")
	if current := b.kids("current"); len(current) != 1 || current[0] != rotated || len(b.kids("next")) != 1 ||
		b.kids("retired")[0] != first {
		t.Errorf("current %v, next %v, retired %v", current, b.kids("next"), b.kids("retired"))
	}
	b.Equal("a token of the former key", b.believed(before), true)
	b.events(audit.KeyRotated, "key:"+rotated, 1)
	after := b.connected().Access
	got := b.values(admin.RemoveKey{KID: rotated})
	if got["removed"] != rotated || b.kids("current")[0] != got["signing"] || b.believed(after) || !b.believed(before) {
		t.Errorf("%v; its token is believed: %v, the former's: %v", got, b.believed(after), b.believed(before))
	}
	b.events(audit.KeyRemoved, "key:"+rotated, 1)
	b.wants("reseal", admin.ResealKeys{}, map[string]any{"resealed": 2.0})
	for _, kid := range []string{rotated, "x", ""} {
		b.refused("key "+kid, admin.RemoveKey{KID: kid})
	}
}

func TestKeys_WithoutMasterKeysAreOnlyListed(t *testing.T) {
	b := newTestEnv(t)
	settings := []string{"ALMONER_DATABASE_URL=" + b.Fixture.Database.Authserver}
	service, done, err := app.Admin(t.Context(), settings, slog.New(slog.DiscardHandler))
	b.Must(err)
	t.Cleanup(done)
	b.service = service
	b.Equal("keys", len(b.list(admin.ListKeys{})), 2)
	b.allRefused(map[string]admin.Command{
		"rotate": admin.RotateKeys{},
		"remove": admin.RemoveKey{KID: b.kids("current")[0]},
		"reseal": admin.ResealKeys{},
	})
	b.do(admin.RemoveMember{Workspace: b.workspace, User: b.user.String()}) // needs no keys and no Redis
}

func TestRetention_ShowAndRun(t *testing.T) {
	b := ownTestEnv(t)
	b.connected()
	show := func(due float64) map[string]any {
		t.Helper()
		got := find(b.list(admin.ShowRetention{}), "kind", "ended grants")
		if got["due"] != due || (got["oldest"] == nil) != (due == 0) {
			t.Errorf("%v, want %v due", got, due)
		}
		return got
	}
	if got := show(0); got["keepDays"] != 90.0 || got["setting"] != "ALMONER_RETENTION_GRANTS_DAYS" {
		t.Errorf("%v", got)
	}
	b.Fixture.Exec(`update account.grants set ends_at = now() - interval '91 days'`)
	show(1)
	got := find(b.list(admin.RunRetention{}), "kind", "ended grants")
	if got["deleted"] != 1.0 || got["left"] != false {
		t.Errorf("%v", got)
	}
	show(0)
	b.events(audit.RetentionRun, "retention", 1)
	b.list(admin.RunRetention{})
	b.events(audit.RetentionRun, "retention", 1) // it deleted nothing
}
