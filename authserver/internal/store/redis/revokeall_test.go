package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// RevokeAll revokes grants like Revoke: those that Redis does not know too, before and after it knows the script.
func TestRevokeAll_RevokesLikeRevoke(t *testing.T) {
	r := newGrantsTest(t)
	field := func(id uuid.UUID, name string) string {
		return r.rdb.HGet(t.Context(), grantKey(id), name).Val()
	}
	for _, script := range []string{"unknown to Redis", "known to Redis"} {
		r.activate()
		ended := []grant.Grant{
			{ID: r.id, Reason: grant.ByAdmin, Ends: r.ends},
			{ID: uuid.New(), Reason: grant.ByUser, Ends: r.ends.Add(time.Hour)},
		}
		if script == "unknown to Redis" {
			if err := r.rdb.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.RevokeAll(t.Context(), ended); err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		for _, g := range ended {
			if state, reason := field(g.ID, "st"), field(g.ID, "rr"); state != "revoked" || reason != string(g.Reason) {
				t.Errorf("%s: %s is %s (%s)", script, g.ID, state, reason)
			}
			life := r.rdb.PTTL(t.Context(), grantKey(g.ID)).Val()
			if want := time.Until(g.Ends) + 24*time.Hour; (life - want).Abs() > time.Minute {
				t.Errorf("%s: %s is stored for %s, want %s", script, g.ID, life, want)
			}
		}
	}
}

// If Redis knows the script, no grant is revoked a second time by a separate call.
func TestRevokeAll_CallsScriptOnceForEachGrant(t *testing.T) {
	r := newGrantsTest(t)
	if err := r.Revoke(t.Context(), uuid.New(), grant.ByUser, r.ends); err != nil { // loads the script
		t.Fatal(err)
	}
	if err := r.rdb.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ended := make([]grant.Grant, 20)
	for i := range ended {
		ended[i] = grant.Grant{ID: uuid.New(), Reason: grant.ByUser, Ends: r.ends}
	}
	if err := r.RevokeAll(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	if stats := r.rdb.Info(t.Context(), "commandstats").Val(); !strings.Contains(stats, "cmdstat_evalsha:calls=20,") {
		t.Error(stats)
	}
}
