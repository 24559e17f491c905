package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// AdminFile returns the path of the settings file for `authserver admin` of this installation, which only its owner can
// read.
func (s *Stack) AdminFile() string { return s.home.path("admin.env") }

// Authserver returns the path of the authserver binary.
func (s *Stack) Authserver() string { return filepath.Join(s.options.Binaries, authserver) }

// writeAdminFile replaces the file at each start, because the stores' ports change.
func (s *Stack) writeAdminFile() error {
	var lines strings.Builder
	mail := s.mailSettings()
	for _, setting := range [][2]string{
		{"ALMONER_DATABASE_URL", s.logins[authserver]},
		{"ALMONER_REDIS_URL", s.RedisURL},
		{"ALMONER_KEYS", s.home.seed.Key(authserver)},
		{"ALMONER_APP_URL", s.AppURL},
		{"ALMONER_SMTP_URL", mail["ALMONER_SMTP_URL"]},
	} {
		if setting[1] == "" {
			continue
		}
		// Only a URL can contain a quote; a strings.Builder never fails.
		_, _ = fmt.Fprintf(&lines, "%s='%s'\n", setting[0], strings.ReplaceAll(setting[1], "'", "%27"))
	}
	next := s.AdminFile() + ".next"
	if err := os.WriteFile(next, []byte(lines.String()), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", s.AdminFile(), err)
	}
	return os.Rename(next, s.AdminFile())
}
