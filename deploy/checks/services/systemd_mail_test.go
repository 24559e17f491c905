package services

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
)

// TestUnits_MailDropInIsAccepted adds authserver-mail.conf to authserver@1.service, whose program checks the settings.
func TestUnits_MailDropInIsAccepted(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(folder(), "authserver-mail.conf"))
	must(t, err)
	added, err := unit.DeserializeOptions(bytes.NewReader(content))
	must(t, err)
	all := services(t)
	i := slices.IndexFunc(all, func(s service) bool { return s.file == "authserver@1.service" })
	s := all[i]
	s.options = append(slices.Clone(s.options), added...)
	secrets := map[string]string{
		"authserver-database-url": "postgres://user:password@stores.invalid/almoner",
		"redis-url":               "redis://:password@stores.invalid:6379",
		"authserver-keys":         newKey(),
		"smtp-url":                "smtp://user:password@mail.invalid",
	}
	for _, c := range s.commands(t, s.load(t, secrets)) {
		settings, err := c.Settings(t)
		must(t, err)
		if unknown := c.Unknown(settings); len(unknown) > 0 {
			t.Errorf("unknown settings %q", unknown)
		}
		// check-config shows no secret, and accepts a sender only together with a mail server.
		if from := settings["ALMONER_MAIL_FROM"]; from != "Almoner <almoner@almoner.example>" {
			t.Errorf("the sender is %q", from)
		}
	}
}
