package admin_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/rest"
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

// It is not parallel: the command writes to the standard error of the process.
func TestProgress_IsWrittenOnceInFiveSeconds(t *testing.T) {
	written, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	testkit.Must(t, err)
	synctest.Test(t, func(t *testing.T) {
		command, stderr := admin.RevokeGrants{All: true}, os.Stderr
		os.Stderr = written
		err := command.Check()
		os.Stderr = stderr
		testkit.Must(t, err)
		for i := range 12 {
			command.Report(500 * (i + 1))
			time.Sleep(time.Second)
		}
	})
	content, err := os.ReadFile(written.Name())
	if want := "Revoked 3000 grants so far.\nRevoked 5500 grants so far.\n"; err != nil || string(content) != want {
		t.Errorf("%q, %v, want %q", content, err, want)
	}
}

func TestPrint_CreatedAtHasSixDecimals(t *testing.T) {
	t.Parallel()
	at := rest.Time(time.Date(2026, 11, 1, 9, 0, 0, 0, time.FixedZone("", 3600)))
	for name, result := range map[string]admin.Result{
		"clients":       admin.List[admin.Client]{{Created: at}},
		"grants":        admin.List[admin.Grant]{{Created: at}},
		"keys":          admin.List[admin.Key]{{Created: at}},
		"users":         admin.List[admin.User]{{Created: at}},
		"organisations": admin.List[admin.Organisation]{{Created: at}},
		"tenants":       admin.List[admin.Workspace]{{Created: at}},
	} {
		var out bytes.Buffer
		if err := admin.Print(&out, true, result); err != nil ||
			strings.Count(out.String(), `"createdAt": "2026-11-01T08:00:00.000000Z"`) != 1 ||
			strings.Count(out.String(), "createdAt") != 1 {
			t.Errorf("%s: %v %s", name, err, out.String())
		}
	}
}
