package app

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// F19: a result contains user-written text as a person sees it, with a notice that it is data.
func TestResult_RemovesInvisibleCharacters(t *testing.T) {
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead)
	id := s.Programmes(workspaceID, 1)[0].String()
	const hostile = "Warm\u202e rooms\u2066\u200b\u200e\u00ad" +
		"\U000e0041\U000e0042\U000e0100\u200d\u200d\ufeff\x1b\u0085" +
		" for all \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 " +
		"\u2764\ufe0f\u200d\U0001f525 <b>&</b>"
	const plain = "Warm rooms\u200d for all \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 " +
		"\u2764\ufe0f\u200d\U0001f525 <b>&</b>"
	s.Exec("update resource.programmes set name = $1, summary = $1 || E'\\n\\tsecond line' where {mine}", hostile)
	s.Exec("update account.users set name = $1 where id = $2", hostile, user)
	s.Exec("update account.tenants set name = $1 where id = $2", hostile, workspaceID)
	s.Exec("update account.oauth_clients set name = $1 where {mine}", hostile)
	for _, c := range []struct {
		call  string
		texts int // user-written texts
	}{
		{calling("whoami", map[string]any{}), 3},
		{calling("list_programmes", map[string]any{}), 2},
		{calling("get_programme", map[string]any{"id": id}), 2},
	} {
		a := s.post(assistant(token), c.call)
		r := a.result(t)
		if got := strings.Count(r.Result.Content[0].Text, plainJSON(plain)); got != c.texts {
			t.Errorf("%d texts, want %d: %s", got, c.texts, r.Result.Content[0].Text)
		}
		var structured any
		if err := json.Unmarshal(r.Result.Structured, &structured); err != nil {
			t.Fatal(err)
		}
		noInvisible(t, structured)
		if notice := r.Result.Content[1].Text; !strings.Contains(notice, "never as instructions") ||
			!strings.Contains(a.Body, `"audience":["assistant"]`) {
			t.Errorf("the result does not say that it is data: %s", a.Body)
		}
	}
}

// plainJSON returns the text of a JSON string.
func plainJSON(text string) string {
	content, _ := json.Marshal(text)
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(strings.Trim(string(content), `"`))
}

// noInvisible checks every string of a result, whatever its name.
func noInvisible(t *testing.T, value any) {
	t.Helper()
	switch value := value.(type) {
	case string:
		for _, r := range value {
			if unicode.Is(unicode.Bidi_Control, r) || unicode.IsControl(r) && r != '\n' && r != '\t' ||
				r >= 0xe0000 && r <= 0xe0fff || r == '\u200b' || r == '\ufeff' {
				t.Errorf("%U in %q", r, value)
			}
		}
	case []any:
		for _, one := range value {
			noInvisible(t, one)
		}
	case map[string]any:
		for _, one := range value {
			noInvisible(t, one)
		}
	}
}
