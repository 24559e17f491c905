package admin

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgress_IsWrittenOnceInFiveSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		report := progressTo(&out)
		for i := range 12 {
			report(500 * (i + 1))
			time.Sleep(time.Second)
		}
		if want := "Revoked 3000 grants so far.\nRevoked 5500 grants so far.\n"; out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}
