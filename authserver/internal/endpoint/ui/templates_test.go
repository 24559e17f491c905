package ui

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/page/brand"
)

// TestTemplates_NamesAreUnique checks that no file defines a name again: all files are in one set, and the last
// definition would replace the others without an error. It also checks that each sentence names the contact.
func TestTemplates_NamesAreUnique(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d templates: %v", len(files), err)
	}
	definition := regexp.MustCompile(`\{\{-? *define +"([^"]+)"`)
	in := map[string]string{}
	for _, file := range files {
		content, err := fs.ReadFile(templateFiles, file)
		must(t, err)
		for _, found := range definition.FindAllStringSubmatch(string(content), -1) {
			if other, defined := in[found[1]]; defined {
				t.Errorf("%s and %s define %q", other, file, found[1])
			}
			in[found[1]] = file
		}
		if strings.Contains(strings.ToLower(string(content)), brand.Unnamed) {
			t.Errorf("%s does not name the contact of the deployment: write {{contact}}", file)
		}
	}
	if len(in) < 20 {
		t.Errorf("only %d names are defined", len(in))
	}
}

// TestMessages_AreUsedAndComplete checks that each name that the endpoints pass to MessageOf has a message, and each
// message a use.
func TestMessages_AreUsedAndComplete(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../*/*.go")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	used := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(t, err)
		for _, found := range regexp.MustCompile(`MessageOf\("([^"]+)"`).FindAllStringSubmatch(string(content), -1) {
			used[found[1]] = true
		}
	}
	for name, m := range messages() {
		wanted := used[name]
		if prefix, needed, ofSection := strings.Cut(name, "account:"); ofSection { // by the permission that it needs
			wanted = used[prefix] && needed != ""
		}
		if !wanted || m.Status < 400 || m.Heading == "" || m.Text == "" {
			t.Errorf("%q is not used, or incomplete: %+v", name, m)
		}
	}
	for name := range used {
		if _, known := messages()[name]; !known && name != "without " {
			t.Errorf("there is no message %q", name)
		}
	}
}

// restricts reports whether the page of a view has form-action, which then allows this site alone.
func restricts(t *testing.T, view View) bool {
	t.Helper()
	w := httptest.NewRecorder()
	parsed(t).Show(w, httptest.NewRequest("GET", "/", nil), http.StatusOK, view)
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; ") || w.Code != http.StatusOK {
		t.Fatalf("%T: %d with the policy %q", view, w.Code, policy)
	}
	if has := strings.Contains(policy, "form-action"); !has || strings.Contains(policy, "form-action 'self'") {
		return has
	}
	t.Fatalf("%T: the policy is %q", view, policy)
	return false
}

// leading returns the views whose forms lead to a path, by their templates.
func leading(to string) map[string]View {
	retried := Retry{Path: "/login/again", Form: true, Fields: []RetryField{{Name: "return", Value: to}}}
	frame := Frame{Person: &Person{Name: "Ada", Email: "ada@example.org"}, Return: to}
	return map[string]View{
		"login":    &Login{Frame: frame},
		"code":     &Code{Frame: frame},
		"reauth":   &Reauth{Frame: frame},
		"passkeys": &Passkeys{Frame: frame},
		"takeover": &Takeover{Frame: frame},
		"choice":   &Choice{Frame: frame},
		"consent":  &Consent{Frame: frame},
		"message":  &Message{Switch: to},
		"retry":    &Message{Retry: &retried},
	}
}

const ofClient = "/oauth/authorize?client_id=c&state=s"

// Contract, section 4: no page whose form may end outside sends form-action, and the others keep it.
func TestFormAction_IsAbsentWhereFormsMayEndOutside(t *testing.T) {
	t.Parallel()
	for _, to := range []string{
		ofClient, "/oauth//authorize?client_id=c", "/settings/../oauth/authorize?client_id=c",
		"/login?return=%2Foauth%2Fauthorize%3Fclient_id%3Dc",
		"/login/again?return=%2Fsettings%2Fpasskeys%3Freturn%3D%252Foauth%252Fauthorize%253Fclient_id%253Dc",
		"/login/upstream?return=/settings/user",
	} {
		for name, view := range leading(to) {
			if restricts(t, view) {
				t.Errorf("%s that leads to %s has form-action", name, to)
			}
		}
	}
	for _, to := range []string{
		"", "/settings/user", "/login/again?return=%2Fsettings%2Fpasskeys", "/oauthx?a=/oauth/",
	} {
		for name, view := range leading(to) {
			if !restricts(t, view) {
				t.Errorf("%s that leads to %q lacks form-action", name, to)
			}
		}
	}
	for _, path := range []string{"/oauth/authorize", "/oauth/authorize/workspace"} {
		if restricts(t, &Message{Retry: &Retry{Path: path, Form: true}}) {
			t.Errorf("the page that repeats a form to %s has form-action", path)
		}
	}
}

// Every template with a form that carries a path, or answers an authorization request, belongs to a view in the test
// above. The forms of the others end here.
func TestFormAction_EachTemplateThatLeadsOnIsKnown(t *testing.T) {
	t.Parallel()
	leads := regexp.MustCompile(`name="return"|action="/(oauth|login/upstream)/|template "(passkey|switch)"`)
	known := leading("")
	for _, name := range []string{
		"authenticator", // sets up an app and shows its recovery codes
		"provider",      // signs out to the sign-in page
		"part_account", "part_passkey",
	} {
		known[name] = nil
	}
	files, err := fs.Glob(templateFiles, "templates/*.html")
	must(t, err)
	found := 0
	for _, file := range files {
		content, err := fs.ReadFile(templateFiles, file)
		must(t, err)
		name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
		if !leads.Match(content) {
			continue
		}
		found++
		if _, expected := known[name]; !expected {
			t.Errorf("%s has a form that leads on: its view needs Return and a row in leading", name)
		}
	}
	if found != len(known)-1 { // "retry" is part of message.html
		t.Errorf("%d templates have forms that lead on, want %d", found, len(known)-1)
	}
}
