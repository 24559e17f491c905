package body

import (
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// What is accepted is a JSON object to encoding/json too, and says the same.
func FuzzReadObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1}`, `{"a":1,"a":2}`, `{"a":1,"A":2}`, `{"a":{"b":1,"b":2}}`, `[]`, `null`, `{"a":"\ud800"}`, `{"a":"\u0000"}`, `{"a":1}x`, `{"a":1} `, "{\"a\":\"\xff\"}", `{"a`, `{"a":1,}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		object, err := ReadObject(content)
		var plain map[string]json.RawMessage
		plainErr := json.Unmarshal(content, &plain)
		if err != nil {
			return
		}
		if plainErr != nil || len(plain) != len(object) || !utf8.Valid(content) {
			t.Fatalf("%q: %d keys, plainly %d, %v", content, len(object), len(plain), plainErr)
		}
		for key, value := range object {
			if string(plain[key]) != string(value) {
				t.Errorf("%q: %q is %s, plainly %s", content, key, value, plain[key])
			}
			if text, isText := object.Text(key); isText {
				var same string
				if json.Unmarshal(value, &same) != nil || same != text {
					t.Errorf("%q: %q", content, text)
				}
			}
		}
	})
}

func TestAKeyIsReadToTheLetter(t *testing.T) {
	object, err := ReadObject([]byte(` {"Name":"x","name":null,"n":7} `))
	if err != nil {
		t.Fatal(err)
	}
	if _, isText := object.Text("name"); isText || !object.Null("name") || !object.Has("n") || object.Has("N") {
		t.Errorf("%v", object)
	}
	if _, isText := object.Text("n"); isText {
		t.Error("a number is text")
	}
	if _, err := ReadObject([]byte(`{"name":"x","name":"x"}`)); err == nil {
		t.Error("a key given twice is accepted")
	}
}
