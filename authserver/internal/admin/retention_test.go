package admin_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
)

// row returns the row of a kind.
func (b *testEnv) row(rows []map[string]any, kind string) map[string]any {
	b.t.Helper()
	for _, one := range rows {
		if one["kind"] == kind {
			return one
		}
	}
	b.t.Fatalf("no row %s in %v", kind, rows)
	return nil
}

func TestRetention_ShowAndRun(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	b.Connected(b.app, b.user)
	show := func() map[string]any {
		t.Helper()
		return b.row(b.list(b.do(ctx, admin.ShowRetention{})), "ended grants")
	}
	if got := show(); got["due"] != 0.0 || got["oldest"] != nil || got["keepDays"] != 90.0 ||
		got["setting"] != "ALMONER_RETENTION_GRANTS_DAYS" {
		t.Errorf("%v", got)
	}
	b.Fixture.Exec(`update account.grants set ends_at = now() - interval '91 days'`)
	if got := show(); got["due"] != 1.0 || got["oldest"] == nil {
		t.Errorf("%v", got)
	}
	got := b.row(b.list(b.do(ctx, admin.RunRetention{})), "ended grants")
	if got["deleted"] != 1.0 || got["left"] != false || show()["due"] != 0.0 {
		t.Errorf("%v", got)
	}
	b.events(audit.RetentionRun, "retention", 1)
	b.list(b.do(ctx, admin.RunRetention{}))
	b.events(audit.RetentionRun, "retention", 1) // it deleted nothing
}
