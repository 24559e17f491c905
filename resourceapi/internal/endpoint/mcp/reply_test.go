package mcp

import (
	"bytes"
	"encoding/json"
	"testing"
)

// The SDK encodes results with json.Marshal, which writes six bytes for each <, > and &.
func FuzzUnescapeHTML(f *testing.F) {
	for _, seed := range []string{"<", "a>b&c", `\u003c`, `\\u003c`, "\\", "\"<\"", "\u2028", "x\n<"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		escaped, _ := json.Marshal(map[string]string{text: text})
		var plain bytes.Buffer
		encoder := json.NewEncoder(&plain)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(map[string]string{text: text}); err != nil {
			t.Fatal(err)
		}
		if got := string(unescapeHTML(escaped)) + "\n"; got != plain.String() {
			t.Errorf("got %s, want %s", got, plain.String())
		}
	})
}
