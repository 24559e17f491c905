package credential

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
)

func TestNew_CredentialMatchesOnlyItsKind(t *testing.T) {
	kinds := []Kind{PersonalAccessToken, ClientSecret, EmbedKey, Invitation, EmailChange}
	for _, kind := range kinds {
		secret, err := kind.New(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range kinds {
			if got, want := other.Matches(secret.Reveal()), other.Prefix == kind.Prefix; got != want {
				t.Errorf("%s minted, %s matches = %v", kind.Prefix, other.Prefix, got)
			}
		}
	}
}

func TestPersonalAccessToken_HasContractFormat(t *testing.T) {
	secret, _ := PersonalAccessToken.New(rand.Reader)
	if !regexp.MustCompile(`^alm_pat_[0-9A-Za-z]{30,}[0-9A-Za-z]{6}$`).MatchString(secret.Reveal()) {
		t.Errorf("format of %d characters is not the contract's", len(secret))
	}
}

func TestMatches_DetectsAnyChangedCharacter(t *testing.T) {
	secret, _ := PersonalAccessToken.New(rand.Reader)
	text := secret.Reveal()
	for i := range text {
		replacement := byte('A')
		if text[i] == 'A' {
			replacement = 'B'
		}
		if changed := text[:i] + string(replacement) + text[i+1:]; PersonalAccessToken.Matches(changed) {
			t.Fatalf("a change at %d still matches", i)
		}
	}
	for _, wrong := range []string{"", text + "0", text[:len(text)-1], " " + text, text + "\n", strings.ToUpper(text)} {
		if PersonalAccessToken.Matches(wrong) {
			t.Error("an invalid text matched")
		}
	}
}

func TestSecret_IsNotPrinted(t *testing.T) {
	secret := Secret("alm_cs_hush")
	encoded, err := json.Marshal(struct{ S Secret }{secret})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", secret, "in", struct{ S Secret }{secret})
	for _, printed := range []string{
		fmt.Sprint(secret), fmt.Sprintf("%s %v %q %x %+v %#v", secret, secret, secret, secret, secret, secret),
		fmt.Sprintf("%+v", struct{ S Secret }{secret}), string(encoded), log.String(),
	} {
		if strings.Contains(printed, "hush") || strings.Contains(printed, "68757368") {
			t.Errorf("the secret is in %q", printed)
		}
	}
}

// A matching text is exact: any other byte breaks it, and it matches only one kind.
func FuzzMatches(f *testing.F) {
	kinds := []Kind{PersonalAccessToken, ClientSecret, EmbedKey, Invitation}
	for _, k := range kinds {
		secret, _ := k.New(rand.Reader)
		f.Add(secret.Reveal(), uint16(9), byte(1))
		f.Add(secret.Reveal()[1:], uint16(0), byte(0))
	}
	f.Fuzz(func(t *testing.T, text string, at uint16, flip byte) {
		matched := 0
		for _, k := range kinds {
			if !k.Matches(text) {
				continue
			}
			matched++
			changed := []byte(text)
			if changed[int(at)%len(text)] ^= flip; flip != 0 && k.Matches(string(changed)) {
				t.Errorf("%s with another byte at %d matches", k.Prefix, int(at)%len(text))
			}
			if k.Matches(text+"0") || k.Matches(text[:len(text)-1]) || !strings.HasPrefix(text, k.Prefix) {
				t.Errorf("%s of another length matches", k.Prefix)
			}
		}
		if matched > 1 {
			t.Error("one text matches two kinds")
		}
	})
}
