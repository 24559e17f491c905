package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
)

// Spec 4.5 ("A 202 means the command was accepted for asynchronous processing") and contract, section 6: imports.

// imports sends a file and waits until the import is finished.
func imports(t *testing.T, api harness.API, csv string) client.Import {
	t.Helper()
	ctx, p := t.Context(), api.Client(t).Programmes
	done, err := p.Import(ctx, strings.NewReader(csv))
	if err == nil {
		done, err = p.WaitForImport(ctx, done.ID)
	}
	mustRedacted(t, err)
	return done
}

func TestImport_IsProcessed(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	done := imports(t, api, "\ufeffname,summary,status,startsOn,endsOn\r\n"+
		"Pantry,Food,active,2026-01-01,2026-12-31\r\nChoir,\"Sings, and\r\ndances\",draft,,\r\n\r\n")
	if done.Status != "processed" || done.Imported != 2 || len(done.Errors) != 0 {
		t.Errorf("import ended as %+v", done)
	}
	all := every(t, api)
	i := slices.IndexFunc(all, func(one client.Programme) bool { return one.Name == "Pantry" })
	if len(all) != 2 || i < 0 || all[i].Status != "active" || all[i].Summary != "Food" ||
		all[i].EndsOn != "2026-12-31" {
		t.Errorf("imported %+v", all)
	}
}
