package admin_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/shared/rest"
)

// It is not parallel: the command writes to the standard error of the process.
func TestProgress_IsWrittenOnceInFiveSeconds(t *testing.T) {
	written, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		command, stderr := admin.RevokeGrants{All: true}, os.Stderr
		os.Stderr = written
		err := command.Check()
		if os.Stderr = stderr; err != nil {
			t.Fatal(err)
		}
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
