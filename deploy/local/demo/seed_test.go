package demo

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestLoadSeed_SecretsDependOnTheFile(t *testing.T) {
	dir := t.TempDir()
	load := func(name string) Seed {
		s, err := LoadSeed(filepath.Join(dir, name))
		must(t, err)
		return s
	}
	values := func(s Seed) map[string]string {
		return map[string]string{
			"fingerprint": s.Fingerprint(), "key": s.Key("a"), "another key": s.Key("b"), "hex": s.Hex("a"),
			"password": s.Password("a"), "uuid": s.UUID("a").String(), "another uuid": s.UUID("b").String(),
		}
	}
	first, second, other := values(load("seed")), values(load("seed")), values(load("other"))
	seen := map[string]string{}
	for name, value := range first {
		if second[name] != value || other[name] == value {
			t.Errorf("%s: the same at the second load: %v, different in another file: %v", name, second[name] == value,
				other[name] != value)
		}
		if before, ok := seen[value]; ok {
			t.Errorf("%s equals %s", name, before)
		}
		seen[value] = name
	}
}

func TestLoadSeed_FileIsPrivateAndDamagedOneIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	if _, err := LoadSeed(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	must(t, os.WriteFile(path, []byte("short\n"), 0o600))
	if _, err := LoadSeed(path); err == nil {
		t.Error("a damaged seed is accepted")
	}
}

func TestPassword_HasReadableForm(t *testing.T) {
	s, err := LoadSeed(filepath.Join(t.TempDir(), "seed"))
	must(t, err)
	if password := s.Password("x"); !regexp.MustCompile(`^[a-z0-9]{5}(-[a-z0-9]{5}){3}$`).MatchString(password) {
		t.Error("the password has another form")
	}
}
