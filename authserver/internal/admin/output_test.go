package admin

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/almonerhq/almoner/shared/rest"
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

func TestPrint_CreatedAtHasSixDecimals(t *testing.T) {
	t.Parallel()
	at := rest.Time(time.Date(2026, 11, 1, 9, 0, 0, 0, time.FixedZone("", 3600)))
	for name, result := range map[string]Result{
		"clients":       List[Client]{{Created: at}},
		"grants":        List[Grant]{{Created: at}},
		"keys":          List[Key]{{Created: at}},
		"users":         List[User]{{Created: at}},
		"organisations": List[Organisation]{{Created: at}},
		"tenants":       List[Workspace]{{Created: at}},
	} {
		var out bytes.Buffer
		if err := Print(&out, true, result); err != nil ||
			strings.Count(out.String(), `"createdAt": "2026-11-01T08:00:00.000000Z"`) != 1 ||
			strings.Count(out.String(), "createdAt") != 1 {
			t.Errorf("%s: %v %s", name, err, out.String())
		}
	}
}
