package authenticator

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

// The vectors of RFC 6238, appendix B, for SHA-1; the codes here are their last six digits.
func TestCheck_AcceptsVectorsOfTheRFC(t *testing.T) {
	secret := Secret("12345678901234567890")
	for at, code := range map[int64]string{
		59:         "287082",
		1111111109: "081804",
		1111111111: "050471",
		1234567890: "005924",
		2000000000: "279037",
	} {
		step, valid := secret.Check(code, time.Unix(at, 0), 0)
		if !valid || step != at/30 {
			t.Errorf("%d: step %d, %t", at, step, valid)
		}
		if made, err := secret.Code(time.Unix(at, 0)); err != nil || made != code {
			t.Errorf("%d: made %s, %v", at, made, err)
		}
	}
}

func TestCheck_AcceptsOneStepOfSkewAndEachCodeOnce(t *testing.T) {
	secret, err := NewSecret(rand.Reader)
	must(t, err)
	now := time.Unix(3_000_000_010, 0)
	code := func(at time.Duration) string {
		text, err := secret.Code(now.Add(at))
		must(t, err)
		return text
	}
	for at, want := range map[time.Duration]bool{
		-60 * time.Second: false,
		-30 * time.Second: true,
		0:                 true,
		30 * time.Second:  true,
		60 * time.Second:  false,
	} {
		if _, valid := secret.Check(code(at), now, 0); valid != want {
			t.Errorf("code of %v: %t", at, valid)
		}
	}
	step, _ := secret.Check(code(0), now, 0)
	if _, valid := secret.Check(code(0), now, step); valid {
		t.Error("a code is good twice")
	}
	if _, valid := secret.Check(code(-30*time.Second), now, step); valid {
		t.Error("an earlier code is good after a later one")
	}
	if _, valid := secret.Check(" "+code(0)[:3]+" "+code(0)[3:], now, 0); !valid {
		t.Error("spaces are not ignored")
	}
	for _, bad := range []string{"", "12345", "1234567", "abcdef", "１２３４５６"} {
		if _, valid := secret.Check(bad, now, 0); valid {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestURL_NamesIssuerAndAccount(t *testing.T) {
	u, err := url.Parse(Secret("12345678901234567890").URL("app.example.org", "ada+b@example.org"))
	must(t, err)
	if u.Scheme != "otpauth" || u.Host != "totp" || u.Path != "/app.example.org:ada+b@example.org" ||
		u.Query().Get("issuer") != "app.example.org" || u.Query().Get("secret") != "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ" {
		t.Errorf("%s %s %s %d parameters", u.Scheme, u.Host, u.Path, len(u.Query()))
	}
}

func TestRecoveryCodes_AreDistinctAndReadAsTyped(t *testing.T) {
	codes, hashes, err := NewRecoveryCodes(rand.Reader)
	if err != nil || len(codes) != 10 || len(hashes) != 10 {
		t.Fatalf("%d codes, %d hashes, %v", len(codes), len(hashes), err)
	}
	seen := map[string]bool{}
	for i, code := range codes {
		text := code.Reveal()
		if len(text) != len("abcd-efgh-ijkl-mnop") || seen[text] {
			t.Error("a code has another form, or occurs twice")
		}
		seen[text] = true
		for _, typed := range []string{strings.ToUpper(text), strings.ReplaceAll(text, "-", ""), " " + text + " "} {
			if string(HashRecoveryCode(credential.Secret(typed))) != string(hashes[i]) {
				t.Error("a code that is typed in another way is refused")
			}
		}
	}
}
