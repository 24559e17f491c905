package grant

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/seal"
)

func newCodec(t testing.TB, keys ...[]byte) *TokenCodec {
	t.Helper()
	if len(keys) == 0 {
		keys = [][]byte{freshKey()}
	}
	c, err := NewTokenCodec(seal.NewKeys(keys...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func freshKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return key
}

func TestTokenCodec_ReadsWhatItCreates(t *testing.T) {
	t.Parallel()
	c, id := newCodec(t), uuid.New()
	secret, want := c.New(Refresh, id, 7)
	got, err := c.Read(Refresh, secret.Reveal())
	if err != nil || got.GrantID != id || got.Generation != 7 || !bytes.Equal(got.Hash, want.Hash) {
		t.Fatalf("%+v %v", got, err)
	}
	if again, _ := c.New(Refresh, id, 7); again == secret {
		t.Error("two tokens of one generation are equal")
	}
}

func TestG3_ForgedTokensAreRefused(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	secret, _ := c.New(Refresh, uuid.New(), 1)
	text := secret.Reveal()
	for i := range text {
		changed := []byte(text)
		changed[i] ^= 1
		if _, err := c.Read(Refresh, string(changed)); err == nil {
			t.Fatalf("altered at byte %d and accepted", i)
		}
	}
	foreign, _ := newCodec(t).New(Refresh, uuid.New(), 1)
	code, _ := c.New(Code, uuid.New(), 0)
	relabelled := string(Refresh) + strings.TrimPrefix(code.Reveal(), string(Code))
	for name, wrong := range map[string]string{
		"empty":                              "",
		"prefix alone":                       string(Refresh),
		"cut":                                text[:len(text)-1],
		"longer":                             text + "A",
		"padded":                             text + "=",
		"line break":                         text[:40] + "\n" + text[40:],
		"line break in place of a character": text[:40] + "\n" + text[41:],
		"white space":                        " " + text,
		"another server's":                   foreign.Reveal(),
		"a code":                             code.Reveal(),
		"a code's body":                      relabelled,
		"prefix in capitals":                 strings.ToUpper(string(Refresh)) + text[len(Refresh):],
	} {
		if _, err := c.Read(Refresh, wrong); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestTokenCodec_KeysRotate(t *testing.T) {
	t.Parallel()
	old, fresh := freshKey(), freshKey()
	secret, _ := newCodec(t, old).New(Refresh, uuid.New(), 1)
	rotated := newCodec(t, fresh, old)
	if _, err := rotated.Read(Refresh, secret.Reveal()); err != nil {
		t.Error("a token of the old key is refused")
	}
	newer, _ := rotated.New(Refresh, uuid.New(), 1)
	if _, err := newCodec(t, old).Read(Refresh, newer.Reveal()); err == nil {
		t.Error("tokens are still created with the old key")
	}
}

func TestBinding_DependsOnEveryPart(t *testing.T) {
	t.Parallel()
	hash := make([]byte, 32)
	base := Binding(hash, "https://a.example/cb", "challenge")
	for _, other := range [][]byte{
		Binding(append([]byte{1}, hash[1:]...), "https://a.example/cb", "challenge"),
		Binding(hash, "https://a.example/c", "bchallenge"), Binding(hash, "https://a.example/cb", ""),
	} {
		if bytes.Equal(base, other) {
			t.Error("two different bindings are equal")
		}
	}
}

func TestChallengeOf_MatchesRFC7636(t *testing.T) { // RFC 7636, appendix B
	got := ChallengeOf(credential.Secret("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"))
	if got != "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" {
		t.Error(got)
	}
}

func FuzzReadToken(f *testing.F) {
	c := newCodec(f)
	tokens := map[TokenKind]string{}
	for _, kind := range []TokenKind{Code, Refresh} {
		secret, _ := c.New(kind, uuid.New(), 3)
		tokens[kind] = secret.Reveal()
		for _, seed := range []string{
			tokens[kind],
			tokens[kind] + "\n",
			tokens[kind][:len(tokens[kind])-1] + "-",
			string(kind),
		} {
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for kind, token := range tokens {
			if _, err := c.Read(kind, text); (err == nil) != (text == token) {
				t.Errorf("%q, read as %s: %v", text, kind, err)
			}
		}
	})
}

// FuzzMintedTokens checks that a token is read as it was created, only as its own kind, and not with any byte changed.
func FuzzMintedTokens(f *testing.F) {
	c := newCodec(f)
	f.Add(make([]byte, 16), uint16(0), uint16(0), byte(1))
	f.Add([]byte("sixteen bytes id"), uint16(65535), uint16(90), byte(0x80))
	f.Fuzz(func(t *testing.T, id []byte, generation, at uint16, flip byte) {
		grantID, err := uuid.FromBytes(id)
		if err != nil {
			return
		}
		for kind, other := range map[TokenKind]TokenKind{Code: Refresh, Refresh: Code} {
			secret, created := c.New(kind, grantID, uint32(generation))
			text := secret.Reveal()
			read, err := c.Read(kind, text)
			if err != nil || read.GrantID != grantID || read.Generation != created.Generation ||
				!bytes.Equal(read.Hash, created.Hash) {
				t.Fatalf("%s of %s, generation %d: %+v %v", kind, grantID, generation, read, err)
			}
			if _, err := c.Read(other, string(other)+text[len(kind):]); err == nil {
				t.Errorf("a %s is accepted as a %s", kind, other)
			}
			changed := []byte(text)
			if changed[int(at)%len(text)] ^= flip; flip != 0 {
				if _, err := c.Read(kind, string(changed)); err == nil {
					t.Errorf("%s, changed at %d by %x, is accepted", kind, int(at)%len(text), flip)
				}
			}
		}
	})
}
