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

// Options configures a server.
type Options struct {
	Dir   string // made if missing; its content survives a restart
	Tools string // where package apt unpacked programs; "" if they are installed

	// Volatile disables fsync, for faster tests. Acknowledged data survives the end of the server process, but not a
	// power failure.
	Volatile bool

	// Settings are further settings of PostgreSQL, such as wal_level=logical.
	Settings []string

	programs *programs // of PostgreSQL; nil to find them
}

const (
	readyWithin = 4 * time.Minute // includes recovery after a crash; a server that fails ends earlier
	stopWithin  = time.Minute
)

// keptSecret returns the secret in the file. It creates the file at the first call.
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

// writeWhole writes a private file atomically: a crash leaves the old content or the new.
func writeWhole(path, content string) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// environment returns the environment of a server: a fixed locale, and the libraries of a private
// installation.
func environment(libraries []string) []string {
	environ := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TZ=UTC"}
	if len(libraries) > 0 {
		environ = append(environ, "LD_LIBRARY_PATH="+strings.Join(libraries, string(filepath.ListSeparator)))
	}
	return environ
}
