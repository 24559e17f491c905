package password_test

import (
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/shared/credential"
)

// TestCheck_RefusesWhatIsEasyToGuess tries passwords that a length rule alone accepts.
func TestCheck_RefusesWhatIsEasyToGuess(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{
		"password1234", "Password1234!", "123456789012", "qwertyuiop12", "aaaaaaaaaaaa", "abcabcabcabc",
		"passwordpassword", "letmeinletmein", "iloveyou2024!", "administrator", "almoner12345",
		"adalovelace1815", "ada@example.org", "Lovelace.Ada1",
	} {
		if got := password.Check(credential.Secret(refused), "Ada Lovelace", "ada@example.org"); !strings.Contains(
			got, "easy to guess",
		) {
			t.Errorf("%s: %q", refused, got)
		}
	}
	for _, good := range []string{
		"correct horse battery staple", "tide lantern quarry", "kJ8#mQ2$vR9!", "пароль из четырёх слов",
		"日本語のとても長い合言葉です",
		strings.Repeat("tide lantern ", 78) + "quarry",
	} {
		if got := password.Check(credential.Secret(good), "Ada Lovelace", "ada@example.org"); got != "" {
			t.Errorf("%s: %q", good, got)
		}
	}
}

func TestCheck_Limits(t *testing.T) {
	t.Parallel()
	for chosen, want := range map[string]string{
		"":                                  "at least 12 characters",
		"kJ8#mQ2$vR9":                       "at least 12 characters",
		"ÄÖÜäöüß§€éè":                       "at least 12 characters", // 11 characters, more bytes
		"tide lantern quarry\n":             "one line of text",
		"tide lantern quarry\x00":           "one line of text",
		"tide lantern quarry\xff":           "one line of text",
		strings.Repeat("tide lantern ", 79): "at most 1024 bytes",
	} {
		if got := password.Check(credential.Secret(chosen)); !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", chosen, got, want)
		}
	}
}

// TestCheck_LongestIsEstimatedQuickly bounds the time that a stranger's password takes.
func TestCheck_LongestIsEstimatedQuickly(t *testing.T) {
	t.Parallel()
	long := credential.Secret(strings.Repeat("qwertyuiop1987", 73))
	begun := time.Now()
	for range 5 {
		password.Check(long, strings.Repeat("qwerty ", 14), "qwerty@example.org")
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("five estimates took %s", took)
	}
}
