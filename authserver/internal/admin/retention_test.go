package admin_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
)

func TestRetention_ShowAndRun(t *testing.T) {
	t.Parallel()
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
