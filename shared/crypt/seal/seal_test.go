package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"testing"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

func newKey(t *testing.T) []byte {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return key
}

func box(t *testing.T, purpose string, keys ...[]byte) *Box {
	t.Helper()
	b, err := NewBox(NewKeys(keys...), purpose)
	must(t, err)
	return b
}

func TestOpen_RequiresPurposeAndKey(t *testing.T) {
	key := newKey(t)
	text := box(t, "cursor", key).Seal([]byte("after 42"))
	if got, err := box(t, "cursor", key).Open(text); err != nil || string(got) != "after 42" {
		t.Fatalf("%q %v", got, err)
	}
	if _, err := box(t, "ticket", key).Open(text); err == nil {
		t.Error("opened for another purpose")
	}
	if _, err := box(t, "cursor", newKey(t)).Open(text); err == nil {
		t.Error("opened with another key")
	}
}

func TestOpen_RefusesAlteredText(t *testing.T) {
	b := box(t, "cursor", newKey(t))
	text := b.Seal([]byte("after 42"))
	for i := range text {
		changed := []byte(text)
		changed[i] ^= 1
		if _, err := b.Open(string(changed)); err == nil {
			t.Fatalf("text altered at %d was opened", i)
		}
	}
	for _, other := range []string{
		"", "x", text + "=", text + "\n", text[:20] + "\r\n" + text[20:], text[:len(text)-1],
	} {
		if _, err := b.Open(other); err == nil {
			t.Errorf("another encoding was opened (%d characters)", len(other))
		}
	}
}

func TestParseKeys(t *testing.T) {
	a, b := newKey(t), newKey(t)
	encode := base64.RawURLEncoding.EncodeToString
	keys, err := ParseKeys(credential.Secret(encode(a) + ", " + base64.URLEncoding.EncodeToString(b)))
	must(t, err)
	if masters := *keys.masters.Load(); len(masters) != 2 || !bytes.Equal(masters[0], a) ||
		!bytes.Equal(masters[1], b) {
		t.Errorf("%d keys", len(masters))
	}
	for _, wrong := range []string{"", "short", encode(a) + ",", encode(a[:31])} {
		if _, err := ParseKeys(credential.Secret(wrong)); err == nil {
			t.Error("accepted a bad key")
		}
	}
}

// After a replacement, a box seals with the new key and opens texts of the old key while the list contains it.
func TestReplace_BoxesFollow(t *testing.T) {
	old, fresh := newKey(t), newKey(t)
	keys := NewKeys(old)
	b, err := NewBox(keys, "cursor")
	must(t, err)
	before := b.Seal([]byte("before"))
	copied := keys
	copied.Replace(NewKeys(fresh, old))
	after := b.Seal([]byte("after"))
	if got, err := b.Open(before); err != nil || string(got) != "before" {
		t.Errorf("%q %v", got, err)
	}
	if got, err := box(t, "cursor", fresh).Open(after); err != nil || string(got) != "after" {
		t.Errorf("the new key did not seal: %q %v", got, err)
	}
	keys.Replace(NewKeys(fresh))
	if _, err := b.Open(before); err == nil {
		t.Error("a removed key opens")
	}
}

func TestDerive_NeedsKey(t *testing.T) {
	for _, keys := range []Keys{{}, NewKeys()} {
		if _, err := NewBox(keys, "cursor"); err == nil {
			t.Error("a box without a key")
		}
	}
}
