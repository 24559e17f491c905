package label

import (
	"strings"
	"testing"
)

func TestPresentable(t *testing.T) {
	for _, good := range []string{"Donor sync", "Spendenübersicht 2", "寄付", "A&B <Trust>", strings.Repeat("é", maxLength)} {
		if !Presentable(good) {
			t.Errorf("%q refused", good)
		}
	}
	for _, bad := range []string{"", " ", "- -", "\u200e", "Claude\u200b", "safe\u202eelbadnu", "a\x00", "a\nb", "a\xff", strings.Repeat("x", maxLength+1)} {
		if Presentable(bad) {
			t.Errorf("%q accepted", bad)
		}
	}
}
