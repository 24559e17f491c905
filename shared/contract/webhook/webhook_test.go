package webhook

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/publicnet"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	network := publicnet.New(publicnet.Options{})
	accepted := []string{
		"https://hooks.example.invalid/almoner?key=1", "https://hooks.example.invalid:8443",
		"https://93.184.216.34/x", "https://[2606:4700:4700::1111]/x", "https://bücher.example.invalid/",
		"https://1.1.1.1:8443/", "https://1.1.1.1:22222/",
	}
	refused := []string{
		"", "hooks.example.org", "http://hooks.example.invalid/", "//hooks.example.invalid/",
		"https:hooks.example.invalid", "https:///x", "https://user@hooks.example.org/", "https://:@hooks.example.org/",
		"https://@hooks.example.org/", "https://hooks.example.org/#part", "https://hooks.example.org/#",
		"https://hooks.example.org:0/", "https://hooks.example.org:65536/", "https://hooks.example.org:/",
		"https://hooks.example.org\\@a.b/", "https://hooks.example.org/a b", "https://hooks..example.org/",
		"https://.example.org/", "https://a.example.invalid../", "https://" + strings.Repeat("a", 64) + ".example.org/",
		"https://a.example.invalid/" + strings.Repeat("a", MaxURL), "https://hooks/", "https://resourceapi.:8443/",
		"https://localhost/", "https://LOCALHOST/", "https://localhost./", "https://api.localhost/",
		"https://localhost.localdomain/", "https://ⓛocalhost/", "https://%6cocalhost/", "https://127.0.0.1/",
		"https://127.0.0.1./", "https://１２７.0.0.1/", "https://127.0.0.1:8443/", "https://127.1/", "https://127.0.1/",
		"https://2130706433/", "https://0x7f000001/", "https://0x7f.1/", "https://0X7F.0.0.1/", "https://0177.0.0.1/",
		"https://017700000001/", "https://1.1.1.1:22/", "https://1.1.1.1:25/", "https://1.1.1.1:6667/",
		"https://1.1.1.1:0/", "https://0/", "https://0.0.0.0/", "https://%31%32%37.0.0.1/", "https://10.1.2.3/",
		"https://172.16.0.1/", "https://192.168.1.1/", "https://169.254.169.254/latest", "https://100.64.0.1/",
		"https://224.0.0.1/", "https://255.255.255.255/", "https://192.0.2.1/", "https://[::1]/", "https://[::]/",
		"https://[0:0:0:0:0:0:0:1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/",
		"https://[::ffff:8.8.8.8]/", "https://[::127.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/",
		"https://[fe80::1%25lo]/", "https://[fc00::1]/", "https://[ff02::1]/", "https://example.1/",
		"https://example.0x10/", "https://exam\u200bple.localhost/", "https://hooks.example.org\t/",
		"https://hooks.example.org\r\n.x/", "https://127.0.0.1%00.example.invalid/",
	}
	for _, text := range slices.Concat(accepted, refused) {
		want := slices.Contains(accepted, text)
		if message := CheckURL(context.Background(), network, text); (message == "") != want {
			t.Errorf("%q: %q, want accepted %t", text, message, want)
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

func TestText(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"":                      "",
		"a\tb\r\nc\n":           "a\tb\nc\n",
		"é 日 مرحبا 😀":           "é 日 مرحبا 😀",
		"\x89PNG\r\n\x1a\n\x00": `\x89PNG` + "\n" + `\x1a` + "\n" + `\x00`,
		"a\u202eb\u200f'\r":     `a\u202eb\u200f'\r`,
		"\uFFFD":                "\uFFFD",
		strings.Repeat("a", MaxResponse-1) + "\xe2": strings.Repeat("a", MaxResponse-1),
		strings.Repeat("a", MaxResponse-1) + "\xff": strings.Repeat("a", MaxResponse-1) + `\xff`,
		"cut \xe2": `cut \xe2`,
	} {
		text, escaped := Text([]byte(body))
		if text != want || escaped != strings.Contains(want, `\`) {
			t.Errorf("%q is %q, escaped %t; want %q", body, text, escaped, want)
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
