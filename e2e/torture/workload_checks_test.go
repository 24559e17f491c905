package torture

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// These functions check a workload after a kill.

// missing returns a kind of work without any acknowledged request, or "" if every kind has one.
func (w *workload) missing() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for kind, count := range map[string]int{
		"refreshed connection":  len(w.current),
		"confidential token":    len(w.confidential),
		"personal access token": len(w.personal),
		"revocation":            len(w.revoked),
		"registration":          len(w.clients),
		"programme":             len(w.programmes),
		"submission":            len(w.submissions),
		"import":                len(w.imports),
	} {
		if count == 0 {
			return kind
		}
	}
	return ""
}

// wantsAllKept checks all acknowledged work except the queued jobs.
func (w *workload) wantsAllKept(t *testing.T) {
	t.Helper()
	for _, tokens := range w.revoked {
		w.connector.WantsRevoked(t, tokens)
	}
	for _, tokens := range w.current {
		w.connector.WantsWorking(t, tokens)
	}
	for _, tokens := range w.confidential {
		w.In(w.Workspace, tokens.AccessToken).Get(t, harness.ListPath).Wants(t, http.StatusOK)
	}
	for name, token := range w.personal {
		if token != "" {
			w.In(w.Workspace, token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
		}
		w.wantsOne(t, "personal access tokens of one form",
			`select count(*) from account.personal_access_tokens where tenant_id = $1 and name = $2`, name)
	}
	for _, id := range w.clients {
		w.As(w.Token).Get(t, w.Clients()+"/"+id).Wants(t, http.StatusOK)
	}
	for name, id := range w.programmes {
		w.In(w.Workspace, w.Token).Get(t, harness.ListPath+"/"+id).Wants(t, http.StatusOK)
		w.wantsOne(t, "programmes of one request", programmesOfName, name)
	}
}

const programmesOfName = `select count(*) from resource.programmes where tenant_id = $1 and name = $2`

// wantsOne checks that the workspace has exactly one row of that name.
func (w *workload) wantsOne(t *testing.T, what, sql, name string) {
	t.Helper()
	if count := w.Database.Count(t, sql, w.Workspace.ID, name); count != 1 {
		t.Errorf("%d %s", count, what)
	}
}

// wantsCommands checks that every accepted submission and import was processed exactly once in effect.
func (w *workload) wantsCommands(t *testing.T) {
	t.Helper()
	for email, path := range w.submissions {
		wantsProcessed(t, "a submission", w.API(), path)
		w.wantsOne(t, "supporters of one submission",
			`select count(*) from resource.supporters where tenant_id = $1 and email = $2`, email)
		w.wantsOne(t, "submissions of one",
			`select count(*) from resource.submissions where tenant_id = $1 and answers->>'email' = $2`, email)
	}
	for name, path := range w.imports {
		wantsProcessed(t, "an import", w.In(w.Workspace, w.Token), path)
		for _, row := range rowsOf(name) {
			w.wantsOne(t, "programmes of one imported row", programmesOfName, row)
		}
	}
}

func wantsProcessed(t *testing.T, what string, api harness.API, path string) {
	t.Helper()
	await.True(t, what+" is processed", func() bool {
		return api.Get(t, path).Wants(t, http.StatusOK).Object(t)["status"] == "processed"
	})
}
