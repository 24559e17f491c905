package runbooks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// F90: a command that fails costs no secret. Each block that replaces one leaves it as it is, and does not say that it
// is complete.
func TestSecrets_FailingCommandLeavesThem(t *testing.T) {
	t.Parallel()
	o := sharedOperator(t)
	read := func() map[string]string {
		all := map[string]string{}
		found, err := os.ReadDir(o.secrets)
		must(t, err)
		for _, file := range found {
			content, err := os.ReadFile(filepath.Join(o.secrets, file.Name()))
			must(t, err)
			all[file.Name()] = string(content)
		}
		return all
	}
	for _, name := range []string{"token", "client-secret.json", "service.json", "redis-url.new"} {
		o.writeSecret(t, name, "something")
	}
	key := []string{"SERVICE=authserver"}
	var before map[string]string
	for _, c := range []struct {
		page, block string
		with        []string
		keys        string // of authserver
		programs    string // "-" replaces none
	}{
		{"keys.md", "keys-new", key, "one", "head basenc tr cat mv"},
		{"keys.md", "keys-front", key, "one,two", "cat mv"},
		{"keys.md", "keys-front", key, "two,one", "-"},
		{"keys.md", "keys-old-out", key, "two,one", "cat mv"},
		{"keys.md", "keys-old-out", key, "one,two", "-"},
		{"keys.md", "client-secret", []string{"WORKSPACE=w", "CLIENT=c"}, "one", "curl cat mv"},
		{"keys.md", "service-new", []string{"NAME=Reporting"}, "one", "authserver mv"},
		{"restore.md", "new-host", []string{"NEW_SERVER=db2.internal:5432"}, "one", "cat mv"},
		{"restore.md", "new-host", nil, "one", "-"},
		{"postgres-move.md", "new-host", nil, "one", "cat mv"},
		{"store-passwords.md", "database-login", key, "one", "head basenc psql cat mv"},
		{"store-passwords.md", "redis-password", key, "one", "head basenc redis-cli cat mv"},
		{"redis-move.md", "new-url", nil, "one", "cat mv"},
	} {
		o.writeSecret(t, "authserver-keys", c.keys)
		o.writeSecret(t, "authserver-keys-newest", "two")
		before = read()
		for program := range strings.FieldsSeq(c.programs) {
			lines, with := failsAtOnce, c.with
			if program == "cat" {
				lines = `head -c 2 "$1"; echo "input/output error" >&2; exit 1`
			}
			if program != "-" {
				with = append([]string{o.replaced(t, program, lines)}, with...)
			}
			out, complaint, err := o.try(t, c.page, c.block, "", with...)
			if err == nil || complaint == "" || strings.Contains(out, "omplete.") {
				t.Errorf("%s#%s, %s, succeeds while %s fails: %v", c.page, c.block, c.keys, program, err)
			}
			now := read()
			for name, content := range before {
				if now[name] != content {
					t.Errorf("%s#%s changes %s while %s fails", c.page, c.block, name, program)
				}
			}
		}
	}
	for _, file := range []string{"authserver-keys", "redis-url"} {
		if before[file] == "" {
			t.Errorf("%s was not compared", file)
		}
	}
}

// F92: admin of the README has the settings that commands need.
func TestReadme_AdminHasItsSettings(t *testing.T) {
	t.Parallel()
	o := sharedOperator(t)
	ws := o.NewWorkspace(t)
	clients := "clients:\n- id: 5b0f5f5e-0c1d-4d6b-8a4c-0d9d4c1a7e11\n  kind: connector\n  name: Assistant\n" +
		"  workspace: " + ws.Workspace.ID + "\n  redirectUris: [https://claude.ai/api/mcp/auth_callback]\n" +
		"  requiredPermissions: [" + harness.ReadProgrammes + "]\n  connectorPlatform: claude\n" +
		"  resource: " + o.BaseURL + "/mcp\n"
	for _, line := range []string{
		"admin apply --file=-", "admin users reset-link " + ws.Owner.Email, "admin users list", "admin keys list",
	} {
		out, complaint, err := o.shell(t.Context(), t, false, clients, line+"\n")
		if err != nil || out == "" {
			t.Errorf("%s: %v\n%s", line, err, harness.Redact(complaint))
		}
	}
}
