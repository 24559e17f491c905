package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// AdminFile names what `authserver admin` needs to know of this installation, as a file of settings, which its owner
// alone can read.
func (s *Stack) AdminFile() string { return s.home.path("admin.env") }

// Authserver is the program of the account service.
func (s *Stack) Authserver() string { return filepath.Join(s.options.Binaries, authserver) }

// writeAdminFile writes it anew at each start: the stores' ports change.
func (s *Stack) writeAdminFile() error {
	var lines strings.Builder
	for _, setting := range [][2]string{
		{"ALMONER_DATABASE_URL", s.logins[authserver]},
		{"ALMONER_REDIS_URL", s.RedisURL},
		{"ALMONER_KEYS", s.home.seed.Key(authserver)},
	} {
		_, _ = fmt.Fprintf(
			&lines,
			"%s='%s'\n",
			setting[0],
			strings.ReplaceAll(setting[1], "'", "%27"),
		) // of URLs and keys, only a URL can have a quote; a Builder does not fail
	}
	next := s.AdminFile() + ".next"
	if err := os.WriteFile(next, []byte(lines.String()), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", s.AdminFile(), err)
	}
	return os.Rename(next, s.AdminFile())
}
