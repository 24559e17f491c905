package grant_test

import (
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

func TestExplain_EveryReasonHasItsText(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 11, 59, 0, 0, time.UTC)
	seen := map[string]grant.Reason{}
	for _, reason := range []grant.Reason{
		grant.Replayed,
		grant.CodeReused,
		grant.CodeGuessed,
		grant.ByUser,
		grant.ByClient,
		grant.ByAdmin,
		grant.MembershipOver,
		grant.ClientDeleted,
		grant.ByPolicy,
		"a reason of a later release",
	} {
		text := reason.Explain("100%d Claude", &at, nil)
		rest, found := strings.CutPrefix(text, "100%d Claude was disconnected on 1 March 2026 at 11:59:00 UTC")
		if !found || !strings.HasSuffix(rest, ".") || strings.Contains(rest, "%") {
			t.Errorf("%s: %q", reason, text)
		}
		if other, taken := seen[rest]; taken {
			t.Errorf("%s and %s have the same text", reason, other)
		}
		seen[rest] = reason
		if want := "100%d Claude was disconnected" + rest; reason.Explain("100%d Claude", nil, nil) != want {
			t.Errorf("%s without a time: %q, want %q", reason, reason.Explain("100%d Claude", nil, nil), want)
		}
	}
}
