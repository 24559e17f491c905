package password_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
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
	testkit.Quick(t, time.Second, func() {
		password.Check(long, strings.Repeat("qwerty ", 14), "qwerty@example.org")
	})
}

// TestChoose_EstimatesInATurn fills the queue of password checks: an estimate must wait like a hash.
func TestChoose_EstimatesInATurn(t *testing.T) {
	t.Parallel()
	turns, err := session.NewPasswords(nil, nil, session.LowestCost())
	if err != nil {
		t.Fatal(err)
	}
	choose := func(ctx context.Context, chosen credential.Secret) (credential.Secret, string, error) {
		caller := session.Caller{Email: "ada@example.org", Known: true}
		return password.Choose(ctx, turns, caller, chosen, "Ada Lovelace")
	}
	if hash, note, err := choose(t.Context(), "password1234"); hash != "" || err != nil ||
		!strings.Contains(note, "easy to guess") {
		t.Errorf("%q %v", note, err)
	}
	hash, note, err := choose(t.Context(), "tide lantern quarry")
	if good, _ := turns.Matches(hash, "tide lantern quarry"); !good || note != "" || err != nil {
		t.Errorf("%q %v", note, err)
	}
	release, inside := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	const atOnce = 2 // hashes of a process
	for range atOnce {
		group.Go(func() {
			_ = turns.Slot(t.Context(), session.Caller{Known: true}, func() error {
				inside <- struct{}{}
				<-release
				return nil
			})
		})
	}
	for range atOnce {
		<-inside
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if hash, note, err := choose(gone, "password1234"); hash != "" || note != "" || !errors.Is(err, session.ErrBusy) {
		t.Errorf("while the queue is full: %q %v", note, err)
	}
	close(release)
	group.Wait()
}

// TestCheck_EstimatesTheFirst32Characters bounds the work: the rest of a password is not estimated.
func TestCheck_EstimatesTheFirst32Characters(t *testing.T) {
	t.Parallel()
	const tail = "kJ8#mQ2$vR9!tide lantern quarry"
	if got := password.Check(credential.Secret(strings.Repeat("a", 32) + tail)); !strings.Contains(got, "easy to") {
		t.Errorf("the first 32 characters do not decide: %q", got)
	}
	if got := password.Check(credential.Secret(strings.Repeat("a", 8) + tail)); got != "" {
		t.Errorf("the 32nd character is not estimated: %q", got)
	}
}

// TestCheck_PagesEstimateInATurn requires that no page estimates a password outside of the queue.
func TestCheck_PagesEstimateInATurn(t *testing.T) {
	t.Parallel()
	files := 0
	err := filepath.WalkDir("../../endpoint", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		content, err := os.ReadFile(path)
		files++
		if strings.Contains(string(content), "password.Check(") {
			t.Errorf("%s calls password.Check: call CheckForm and Choose", path)
		}
		return err
	})
	if err != nil || files < 40 {
		t.Errorf("%d files, %v", files, err)
	}
}
