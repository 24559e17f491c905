package envconf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/credential"
)

type config struct {
	Listen string            `env:"ALMONER_LISTEN" envDefault:"127.0.0.1:8081" doc:"Where to listen."`
	Key    credential.Secret `env:"ALMONER_KEY,required,notEmpty" doc:"A key."`
	Limit  int               `env:"ALMONER_LIMIT" envDefault:"5" doc:"A number."`
}

func (c *config) Check() []error {
	if c.Limit < 0 {
		return []error{errors.New("ALMONER_LIMIT is negative")}
	}
	return nil
}

func TestEveryMistakeIsReportedAtOnceAndNoValueIsQuoted(t *testing.T) {
	err := Load(&config{}, []string{"ALMONER_LIMIT=swordfish"})
	if err == nil {
		t.Fatal("no mistake found")
	}
	for _, want := range []string{"ALMONER_KEY is not set", "Limit"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "swordfish") {
		t.Errorf("a value is quoted: %v", err)
	}
}

func TestSecretFromAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var c config
	if err := Load(&c, []string{"ALMONER_KEY_FILE=" + path}); err != nil || c.Key.Reveal() != "hush" || c.Listen != "127.0.0.1:8081" {
		t.Fatalf("%v", err)
	}
	if strings.Contains(Print(c), "hush") || !strings.Contains(Print(c), "ALMONER_KEY=[redacted]") {
		t.Error(Print(c))
	}
	if err := Load(&config{}, []string{"ALMONER_KEY_FILE=" + path, "ALMONER_KEY=other"}); err == nil {
		t.Error("a setting given twice is accepted")
	}
}

func TestTheEnvironmentWinsOverTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "almoner.env")
	if err := os.WriteFile(path, []byte("ALMONER_KEY=file\nALMONER_LIMIT=7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var c config
	if err := Load(&c, []string{"ALMONER_CONFIG_FILE=" + path, "ALMONER_KEY=environment"}); err != nil || c.Key.Reveal() != "environment" || c.Limit != 7 {
		t.Errorf("%v %d", err, c.Limit)
	}
	if err := Load(&config{}, []string{"ALMONER_KEY=x", "ALMONER_LIMIT=-1"}); err == nil {
		t.Error("Check was not asked")
	}
}

func TestDescribe(t *testing.T) {
	settings := Describe(&config{})
	if len(settings) != 3 || settings[1].Required != "yes" || settings[0].Default == "" {
		t.Errorf("%+v", settings)
	}
}
