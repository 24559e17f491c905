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

// ResourceapiFile returns the path of the settings file for the commands of resourceapi, which only its owner can read.
func (s *Stack) ResourceapiFile() string { return s.home.path("resourceapi.env") }

// Authserver returns the path of the authserver binary.
func (s *Stack) Authserver() string { return filepath.Join(s.options.Binaries, authserver) }

// writeSettingsFiles replaces the files at each start, because the stores' ports change.
func (s *Stack) writeSettingsFiles() error {
	err := writeSettings(s.AdminFile(), [][2]string{
		{"ALMONER_DATABASE_URL", s.logins[authserver]},
		{"ALMONER_REDIS_URL", s.RedisURL},
		{"ALMONER_KEYS", s.home.seed.Key(authserver)},
		{"ALMONER_APP_URL", s.AppURL},
		{"ALMONER_BASE_URL", s.BaseURL},
		{"ALMONER_SMTP_URL", s.mailSettings()["ALMONER_SMTP_URL"]},
	})
	if err != nil {
		return err
	}
	return writeSettings(s.ResourceapiFile(), [][2]string{
		{"ALMONER_DATABASE_URL", s.logins[resourceapi]},
		{"ALMONER_REDIS_URL", s.RedisURL},
		{"ALMONER_KEYS", s.home.seed.Key(resourceapi)},
		{"ALMONER_APP_URL", s.AppURL},
		{"ALMONER_BASE_URL", s.BaseURL},
	})
}

// writeSettings writes the settings that have a value, in the format of --config.
func writeSettings(path string, settings [][2]string) error {
	var lines strings.Builder
	for _, setting := range settings {
		if setting[1] == "" {
			continue
		}
		// Only a URL can contain a quote; a strings.Builder never fails.
		_, _ = fmt.Fprintf(&lines, "%s='%s'\n", setting[0], strings.ReplaceAll(setting[1], "'", "%27"))
	}
	next := path + ".next"
	if err := os.WriteFile(next, []byte(lines.String()), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(next, path)
}
