package grant

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func newCodec(t testing.TB, keys ...[]byte) *TokenCodec {
	t.Helper()
	if len(keys) == 0 {
		keys = [][]byte{freshKey()}
	}
	c, err := NewTokenCodec(seal.NewKeys(keys...))
	testkit.Must(t, err)
	return c
}

func freshKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return key
}

// A refresh token that a program of commit c1a2c578 issued, and its successor.
const (
	formerToken = "alm_rt_b5YZ_4uGTQG0LQDAT8lk_wAAAAe6ZQOFuVhdTI-Daj6p0grShB0Fp" +
		"LdzY3G9qMktXoJD4dS8_YaGTk7a6mN1ZGu_d0crboLAFQtwI06hAtSwujkK"
	formerSuccessor = "alm_rt_b5YZ_4uGTQG0LQDAT8lk_wAAAAiw6djn_Gtlka01UvCwJJBT9_tVu" +
		"qegYeC_NDfe8uzo81oli15SI43KQKn_sEMEwsmU2-EX7jPJZDiVSRXovfTQ"
)

// Tokens of the previous release stay valid until their grant ends.
func TestTokenCodec_ReadsTokensOfFormerRelease(t *testing.T) {
	c := newCodec(t, bytes.Repeat([]byte{7}, 32))
	token, err := c.Read(Refresh, formerToken)
	if err != nil || token.Generation != 7 || token.WorkspaceID != uuid.Nil ||
		token.GrantID != uuid.MustParse("6f9619ff-8b86-4d01-b42d-00c04fc964ff") {
		t.Fatalf("%+v %v", token, err)
	}
	next := c.successorsOf(token, ProofByKey("a key of the request", nil)).secrets[0]
	if next != formerSuccessor {
		t.Errorf("the successor is %s", next.Reveal())
	}
	token.WorkspaceID = uuid.New() // its grant is located
	located := c.successorsOf(token, ProofByKey("a key of the request", nil)).secrets[0]
	if located != formerSuccessor {
		t.Errorf("the successor of a located token is %s", located.Reveal())
	}
}

// The hash of a derived successor does not depend on the format, so that processes of two releases recognise it.
func TestSuccessors_HashIsSameInBothFormats(t *testing.T) {
	c, key := newCodec(t), newKey()
	secret, token := c.New(Refresh, key, 7)
	next := c.successorsOf(token, ProofByKey("a key of the request", nil))
	read, err := c.Read(Refresh, next.secrets[0].Reveal())
	if err != nil || read.Key() != key || len(next.secrets[0]) != len(secret) {
		t.Errorf("%+v %v", read, err)
	}
	token.former = true
	former := c.successorsOf(token, ProofByKey("a key of the request", nil))
	if !bytes.Equal(former.hashes[0], next.hashes[0]) {
		t.Error("the hashes differ")
	}
}

func newKey() Key { return Key{uuid.New(), uuid.New()} }

func TestG3_ForgedTokensAreRefused(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	secret, _ := c.New(Refresh, newKey(), 1)
	text := secret.Reveal()
	for i := range text {
		changed := []byte(text)
		changed[i] ^= 1
		if _, err := c.Read(Refresh, string(changed)); err == nil {
			t.Fatalf("altered at byte %d and accepted", i)
		}
	}
	foreign, _ := newCodec(t).New(Refresh, newKey(), 1)
	code, _ := c.New(Code, newKey(), 0)
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

// A token that this server did not issue causes no slow hash and no store access.
func TestReadToken_GarbageCostsMicroseconds(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	forged, _ := newCodec(t).New(Refresh, newKey(), 1)
	garbage := string(Refresh) + strings.Repeat("A", len(forged)-len(Refresh))
	for name, text := range map[string]string{"garbage": garbage, "another server's": forged.Reveal()} {
		testkit.Quick(t, 100*time.Microsecond, func() {
			if _, err := c.Read(Refresh, text); err == nil {
				t.Fatalf("%s: accepted", name)
			}
		})
	}
}

func TestTokenCodec_KeysRotate(t *testing.T) {
	t.Parallel()
	old, fresh := freshKey(), freshKey()
	secret, _ := newCodec(t, old).New(Refresh, newKey(), 1)
	rotated := newCodec(t, fresh, old)
	if _, err := rotated.Read(Refresh, secret.Reveal()); err != nil {
		t.Error("a token of the old key is refused")
	}
	newer, _ := rotated.New(Refresh, newKey(), 1)
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
		secret, _ := c.New(kind, newKey(), 3)
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

// FuzzMintedTokens checks that a token is read as it was created, only as its own kind, and not with any byte changed,
// and that no two tokens are equal.
func FuzzMintedTokens(f *testing.F) {
	c := newCodec(f)
	f.Add(make([]byte, 16), uint16(0), uint16(0), byte(1))
	f.Add([]byte("sixteen bytes id"), uint16(65535), uint16(91), byte(0x80))
	f.Fuzz(func(t *testing.T, id []byte, generation, at uint16, flip byte) {
		grantID, err := uuid.FromBytes(id)
		if err != nil {
			return
		}
		key := Key{WorkspaceID: grantID, ID: grantID}
		if at%2 == 1 { // the former format
			key.WorkspaceID = uuid.Nil
		}
		for kind, other := range map[TokenKind]TokenKind{Code: Refresh, Refresh: Code} {
			secret, created := c.New(kind, key, uint32(generation))
			text := secret.Reveal()
			read, err := c.Read(kind, text)
			if err != nil || read.Key() != key || read.Generation != created.Generation ||
				!bytes.Equal(read.Hash, created.Hash) {
				t.Fatalf("%s of %s, generation %d: %+v %v", kind, grantID, generation, read, err)
			}
			if again, _ := c.New(kind, key, uint32(generation)); again == secret {
				t.Errorf("two tokens of the kind %s and generation %d are equal", kind, generation)
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
