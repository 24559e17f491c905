package accesstoken

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// maxLength bounds the length of a token: our tokens have about 700 characters.
const maxLength = 4096

type header struct {
	Algorithm string   `json:"alg"`
	Type      string   `json:"typ"`
	KeyID     string   `json:"kid"`
	Critical  []string `json:"crit"`
}

// checkSpelling is stricter than jwx, which also accepts the JSON serialisation, padding, line breaks, any
// typ and unknown crit headers (RFC 8725, section 3). It requires the compact form, base64url without
// padding, alg, typ and kid, no crit, and claims of the types that Sign writes.
func checkSpelling(text string) (header, error) {
	if len(text) > maxLength {
		return header{}, ErrInvalid
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return header{}, ErrInvalid
	}
	decoded := make([][]byte, 3)
	for i, part := range parts {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil || len(part) == 0 || strings.ContainsAny(part, "\r\n") {
			return header{}, ErrInvalid
		}
		decoded[i] = raw
	}
	var h header
	if !decodeOnce(decoded[0], &h) || h.Algorithm != Algorithm.String() || h.Type != Type || h.KeyID == "" ||
		h.Critical != nil {
		return header{}, ErrInvalid
	}
	var types struct {
		Audience string `json:"aud"`
		Expires  int64  `json:"exp"`
		IssuedAt int64  `json:"iat"`
	}
	if !decodeOnce(decoded[1], &types) || types.Audience == "" || types.Expires <= 0 || types.IssuedAt <= 0 {
		return header{}, ErrInvalid
	}
	return h, nil
}

// decodeOnce decodes a single JSON object with distinct keys.
func decodeOnce(raw []byte, into any) bool {
	if !distinctKeys(raw) {
		return false
	}
	return json.Unmarshal(raw, into) == nil
}

func distinctKeys(raw []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return false
	}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		key, ok := token.(string)
		// encoding/json matches keys case-insensitively, so keys that differ only in case would be the same
		// to it.
		if err != nil || !ok || seen[strings.ToLower(key)] {
			return false
		}
		seen[strings.ToLower(key)] = true
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			return false
		}
	}
	return true
}
