package grant_test

import (
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestReuse_DescribesProbableCause(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reuse       grant.Reuse
		likelyRetry bool
		words       string
	}{
		"at once": {
			grant.Reuse{Network: "203.0.113.0/24", UserAgent: "sync/1.2"},
			true,
			"This was probably a network fault and not theft: the key that replaced it, 1 second earlier, had not " +
				"been used. The request came from 203.0.113.0/24 (“sync/1.2”).",
		},
		"ten minutes later": {
			grant.Reuse{Seconds: 600},
			true,
			"This was probably a network fault and not theft: the key that replaced it, 10 minutes earlier, had not " +
				"been used.",
		},
		"eleven minutes later": {
			grant.Reuse{Seconds: 660},
			false,
			"This may be theft or an old backup: the key that replaced it, 11 minutes earlier, had not been used.",
		},
		"used": {
			grant.Reuse{SuccessorUsed: true, Seconds: 3 * 24 * 3600, Network: "2001:db8:1::/48"},
			false,
			"This looks like theft: the key that replaced it had already been used, 3 days earlier. " +
				"The request came from 2001:db8:1::/48.",
		},
	} {
		words := grant.Replayed.Explain("App", nil, &c.reuse)
		if c.reuse.LikelyRetry() != c.likelyRetry || words != grant.Replayed.Ended("App", nil)+" "+c.words {
			t.Errorf("%s: %t %q", name, c.reuse.LikelyRetry(), words)
		}
	}
}

func TestReuse_IsRecorded(t *testing.T) {
	b := newTestEnv(t)
	thief := grant.Sender{Network: "203.0.113.0/24", UserAgent: "curl/8"}
	replay := func(refresh credential.Secret) {
		t.Helper()
		b.refused("replay")(b.rotateBy(refresh, b.app.ID, atResource, thief))
	}
	wants := func(what string, g grant.Grant, used bool, seconds int64) {
		t.Helper()
		b.wantRevoked(g.ID, b.state(g.ID).Reason)
		e := b.state(g.ID).Reuse
		if e == nil || e.SuccessorUsed != used || e.Seconds < seconds || e.Seconds > seconds+60 ||
			e.Network != thief.Network || e.UserAgent != thief.UserAgent {
			t.Errorf("%s: %+v", what, e)
		}
		var events int
		b.fixture.Read(`select count(*) from account.audit_events e join account.grants g on subject = 'grant:' || g.id
			and detail -> 'ending' = to_jsonb(g.ending)
			where action = '`+audit.GrantRevoked+`' and g.id = '`+g.ID.String()+`'`, &events)
		if events != 1 {
			t.Errorf("%s: %d events with it", what, events)
		}
	}
	ago := func(g grant.Grant, by time.Duration) {
		b.fixture.Exec(`update account.grants set renewed_at = now() - $2::interval where id = $1`, g.ID, by)
	}
	g, first := b.active()
	b.mustRotate(first)
	ago(g, time.Hour)
	replay(first)
	wants("successor not used", g, false, 3600)

	g, first = b.active()
	b.mustRotate(b.mustRotate(first))
	replay(first)
	wants("successor used", g, true, 0)

	g, code := b.consent()
	b.mustRedeem(code)
	token, _ := b.grants.Tokens.Read(grant.Code, code.Reveal())
	b.refused("reuse")(b.exchange(grant.Request{Token: token, Terms: b.terms(), Sender: thief}, false))
	wants("code", g, false, 0)

	g, _ = b.active()
	testkit.Must(t, b.grants.Revoke(t.Context(), b.state(g.ID), grant.ByUser, "user:x"))
	if e := b.state(g.ID).Reuse; e != nil || strings.Contains(grant.ByUser.Explain("App", nil, e), "looks like") {
		t.Errorf("disconnected: %+v", e)
	}
}
