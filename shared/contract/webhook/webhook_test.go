package webhook

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/publicnet"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	network := publicnet.New(publicnet.Options{})
	for text, accepted := range map[string]bool{
		"https://hooks.example.invalid/almoner?key=1": true,
		"https://hooks.example.invalid:8443":          true,
		"https://93.184.216.34/x":                     true,
		"https://[2606:4700:4700::1111]/x":            true,
		"https://bücher.example.invalid/":             true,

		"":                                                         false,
		"hooks.example.org":                                        false,
		"http://hooks.example.invalid/":                            false,
		"//hooks.example.invalid/":                                 false,
		"https:hooks.example.invalid":                              false,
		"https:///x":                                               false,
		"https://user@hooks.example.org/":                          false,
		"https://:@hooks.example.org/":                             false,
		"https://@hooks.example.org/":                              false,
		"https://hooks.example.org/#part":                          false,
		"https://hooks.example.org/#":                              false,
		"https://hooks.example.org:0/":                             false,
		"https://hooks.example.org:65536/":                         false,
		"https://hooks.example.org:/":                              false,
		"https://hooks.example.org\\@a.b/":                         false,
		"https://hooks.example.org/a b":                            false,
		"https://hooks..example.org/":                              false,
		"https://.example.org/":                                    false,
		"https://a.example.invalid../":                             false,
		"https://" + strings.Repeat("a", 64) + ".example.org/":     false,
		"https://a.example.invalid/" + strings.Repeat("a", MaxURL): false,

		"https://hooks/":                        false,
		"https://resourceapi.:8443/":            false,
		"https://localhost/":                    false,
		"https://LOCALHOST/":                    false,
		"https://localhost./":                   false,
		"https://api.localhost/":                false,
		"https://localhost.localdomain/":        false,
		"https://ⓛocalhost/":                    false,
		"https://%6cocalhost/":                  false,
		"https://127.0.0.1/":                    false,
		"https://127.0.0.1./":                   false,
		"https://１２７.0.0.1/":                    false,
		"https://127.0.0.1:8443/":               false,
		"https://127.1/":                        false,
		"https://127.0.1/":                      false,
		"https://2130706433/":                   false,
		"https://0x7f000001/":                   false,
		"https://0x7f.1/":                       false,
		"https://0X7F.0.0.1/":                   false,
		"https://0177.0.0.1/":                   false,
		"https://017700000001/":                 false,
		"https://1.1.1.1:22/":                   false,
		"https://1.1.1.1:25/":                   false,
		"https://1.1.1.1:6667/":                 false,
		"https://1.1.1.1:0/":                    false,
		"https://1.1.1.1:8443/":                 true,
		"https://1.1.1.1:22222/":                true,
		"https://0/":                            false,
		"https://0.0.0.0/":                      false,
		"https://%31%32%37.0.0.1/":              false,
		"https://10.1.2.3/":                     false,
		"https://172.16.0.1/":                   false,
		"https://192.168.1.1/":                  false,
		"https://169.254.169.254/latest":        false,
		"https://100.64.0.1/":                   false,
		"https://224.0.0.1/":                    false,
		"https://255.255.255.255/":              false,
		"https://192.0.2.1/":                    false,
		"https://[::1]/":                        false,
		"https://[::]/":                         false,
		"https://[0:0:0:0:0:0:0:1]/":            false,
		"https://[::ffff:127.0.0.1]/":           false,
		"https://[::ffff:7f00:1]/":              false,
		"https://[::ffff:8.8.8.8]/":             false,
		"https://[::127.0.0.1]/":                false,
		"https://[64:ff9b::7f00:1]/":            false,
		"https://[2002:7f00:1::]/":              false,
		"https://[fe80::1%25lo]/":               false,
		"https://[fc00::1]/":                    false,
		"https://[ff02::1]/":                    false,
		"https://example.1/":                    false,
		"https://example.0x10/":                 false,
		"https://exam\u200bple.localhost/":      false,
		"https://hooks.example.org\t/":          false,
		"https://hooks.example.org\r\n.x/":      false,
		"https://127.0.0.1%00.example.invalid/": false,
	} {
		if message := CheckURL(context.Background(), network, text); (message == "") != accepted {
			t.Errorf("%q: %q, want accepted %t", text, message, accepted)
		}
	}
}

func TestCheckTypes(t *testing.T) {
	t.Parallel()
	for _, accepted := range [][]string{{"programme.created"}, EventTypes()} {
		if message := CheckTypes(accepted); message != "" {
			t.Errorf("%q: %s", accepted, message)
		}
	}
	for _, refused := range [][]string{
		nil,
		{"programme.created", "programme.created"},
		{"programme.*"},
		{"programme"},
		{"programme.created "},
		{"Programme.created"},
		{TestType},
		{""},
	} {
		if CheckTypes(refused) == "" {
			t.Errorf("%q accepted", refused)
		}
	}
}

func TestSecret_OnlyItsKeyAndEndpointOpenIt(t *testing.T) {
	t.Parallel()
	key := func(bytes ...byte) seal.Keys {
		var masters [][]byte
		for _, b := range bytes {
			masters = append(masters, []byte(strings.Repeat(string(b), 32)))
		}
		return seal.NewKeys(masters...)
	}
	keys := func(master seal.Keys) *Keys {
		made, err := NewKeys(master)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	secret, err := NewSecret(rand.Reader)
	if err != nil || !strings.HasPrefix(secret.Reveal(), SecretPrefix) || len(secret.Reveal()) != 50 {
		t.Fatalf("%q, %v", secret.Reveal(), err)
	}
	endpoint, former := uuid.New(), keys(key('a'))
	sealed, err := Seal(former.Public(), endpoint, secret)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(sealed.Secret), secret.Reveal()) {
		t.Error("not encrypted")
	}
	for _, holders := range []*Keys{former, keys(key('b', 'a'))} {
		if opened, err := holders.Open(endpoint, sealed); err != nil || opened != secret {
			t.Errorf("%q, %v", opened.Reveal(), err)
		}
	}
	replaced := key('b')
	following := keys(replaced)
	replaced.Replace(key('a'))
	if opened, err := following.Open(endpoint, sealed); err != nil || opened != secret {
		t.Errorf("after the keys were replaced: %v", err)
	}
	if _, err := former.Open(uuid.New(), sealed); !errors.Is(err, seal.ErrForeign) {
		t.Errorf("opened for another endpoint: %v", err)
	}
	if _, err := keys(key('b')).Open(endpoint, sealed); !errors.Is(err, seal.ErrForeign) {
		t.Errorf("opened with another key: %v", err)
	}
}
