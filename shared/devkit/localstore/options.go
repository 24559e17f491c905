package localstore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options say where a server keeps its files and how careful it is.
type Options struct {
	Dir   string // made when missing; what it holds is there at the next start
	Tools string // where package apt unpacked programs privately; "" when they are installed

	// Volatile trades safety in a power cut for speed (fsync off): for tests. What was committed survives the death of
	// the server process all the same.
	Volatile bool
}

const (
	readyWithin = 60 * time.Second // recovery after a crash is part of it
	stopWithin  = 20 * time.Second
)

// keptSecret returns the secret in the file, which it makes at the first call.
func keptSecret(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err == nil && len(strings.TrimSpace(string(content))) > 0 {
		return strings.TrimSpace(string(content)), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // never fails (crypto/rand)
	text := hex.EncodeToString(secret)
	return text, writeWhole(path, text+"\n")
}

// writeWhole writes a private file so that a crash leaves the old content or the new, never a part.
func writeWhole(path, content string) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// environment is what a server sees of ours: no locale surprises, and the libraries of a private unpacking.
func environment(libraries []string) []string {
	environ := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TZ=UTC"}
	if len(libraries) > 0 {
		environ = append(environ, "LD_LIBRARY_PATH="+strings.Join(libraries, string(filepath.ListSeparator)))
	}
	return environ
}
