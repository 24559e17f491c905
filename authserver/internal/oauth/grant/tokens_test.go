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

func newMint(t testing.TB, keys ...[]byte) *TokenCodec {
	t.Helper()
	if len(keys) == 0 {
		keys = [][]byte{freshKey()}
	}
	m, err := NewTokenCodec(seal.Keys(keys))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func freshKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return key
}

func TestATokenIsReadAsItWasMinted(t *testing.T) {
	m, id := newMint(t), uuid.New()
	secret, want := m.New(Refresh, id, 7)
	got, err := m.Read(Refresh, secret.Reveal())
	if err != nil || got.GrantID != id || got.Generation != 7 || !bytes.Equal(got.Hash, want.Hash) {
		t.Fatalf("%+v %v", got, err)
	}
	if again, _ := m.New(Refresh, id, 7); again == secret {
		t.Error("two tokens of one generation are equal")
	}
}

func TestG3_OnlyTokensThatWeMintedAreRead(t *testing.T) {
	m := newMint(t)
	secret, _ := m.New(Refresh, uuid.New(), 1)
	text := secret.Reveal()
	for i := range text {
		changed := []byte(text)
		changed[i] ^= 1
		if _, err := m.Read(Refresh, string(changed)); err == nil {
			t.Fatalf("altered at %d and believed", i)
		}
	}
	foreign, _ := newMint(t).New(Refresh, uuid.New(), 1)
	code, _ := m.New(Code, uuid.New(), 0)
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
		if _, err := m.Read(Refresh, wrong); err == nil {
			t.Errorf("%s: believed", name)
		}
	}
}

func TestKeysRotate(t *testing.T) {
	old, fresh := freshKey(), freshKey()
	secret, _ := newMint(t, old).New(Refresh, uuid.New(), 1)
	rotated := newMint(t, fresh, old)
	if _, err := rotated.Read(Refresh, secret.Reveal()); err != nil {
		t.Error("a token of the old key is refused")
	}
	newer, _ := rotated.New(Refresh, uuid.New(), 1)
	if _, err := newMint(t, old).Read(Refresh, newer.Reveal()); err == nil {
		t.Error("still minting with the old key")
	}
}

func TestBindingTellsItsPartsApart(t *testing.T) {
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

func TestChallengeOfIsThatOfTheRFC(t *testing.T) { // RFC 7636, appendix B
	if got := ChallengeOf(credential.Secret("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")); got != "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" {
		t.Error(got)
	}
}

func FuzzReadToken(f *testing.F) {
	m := newMint(f)
	minted := map[TokenKind]string{}
	for _, kind := range []TokenKind{Code, Refresh} {
		secret, _ := m.New(kind, uuid.New(), 3)
		minted[kind] = secret.Reveal()
		for _, seed := range []string{
			minted[kind],
			minted[kind] + "\n",
			minted[kind][:len(minted[kind])-1] + "-",
			string(kind),
		} {
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for kind, only := range minted {
			if _, err := m.Read(kind, text); (err == nil) != (text == only) {
				t.Errorf("%q, read as %s: %v", text, kind, err)
			}
		}
	})
}

// What was minted is read as it was minted, as the one kind that it is, and not once any byte of it is another.
func FuzzMintedTokens(f *testing.F) {
	m := newMint(f)
	f.Add(make([]byte, 16), uint16(0), uint16(0), byte(1))
	f.Add([]byte("sixteen bytes id"), uint16(65535), uint16(90), byte(0x80))
	f.Fuzz(func(t *testing.T, id []byte, generation, at uint16, flip byte) {
		grantID, err := uuid.FromBytes(id)
		if err != nil {
			return
		}
		for kind, other := range map[TokenKind]TokenKind{Code: Refresh, Refresh: Code} {
			secret, minted := m.New(kind, grantID, uint32(generation))
			text := secret.Reveal()
			read, err := m.Read(kind, text)
			if err != nil || read.GrantID != grantID || read.Generation != minted.Generation ||
				!bytes.Equal(read.Hash, minted.Hash) {
				t.Fatalf("%s of %s, generation %d: %+v %v", kind, grantID, generation, read, err)
			}
			if _, err := m.Read(other, string(other)+text[len(kind):]); err == nil {
				t.Errorf("a %s is believed to be a %s", kind, other)
			}
			changed := []byte(text)
			if changed[int(at)%len(text)] ^= flip; flip != 0 {
				if _, err := m.Read(kind, string(changed)); err == nil {
					t.Errorf("%s, changed at %d by %x, is believed", kind, int(at)%len(text), flip)
				}
			}
		}
	})
}
