package e2e

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
)

// programmes is the list's path (spec 4.1).
const programmes = "/v1/programmes/programmes"

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// tamperedPAT returns a personal access token with a valid checksum that was never issued.
func tamperedPAT(token string) string {
	body := []byte(token[:len(token)-6])
	body[len(body)-1] = otherLetter(body[len(body)-1])
	sum := crc32.ChecksumIEEE(body)
	check := make([]byte, 6)
	for i := 5; i >= 0; i-- {
		check[i] = base62[sum%62]
		sum /= 62
	}
	return string(body) + string(check)
}

// alterLast changes a character near the end of a token, which belongs to a signature, a MAC or a checksum.
func alterLast(token string) string {
	return alterAt(token, len(token)-3)
}

func alterAt(token string, at int) string {
	return token[:at] + string(otherLetter(token[at])) + token[at+1:]
}

func otherLetter(letter byte) byte {
	if letter == 'A' {
		return 'B'
	}
	return 'A'
}

// misspellings returns texts that a lenient parser could accept as the token.
func misspellings(token string) map[string]string {
	return map[string]string{
		"altered":        alterLast(token),
		"altered early":  alterAt(token, 12),
		"cut":            token[:len(token)-1],
		"longer":         token + "A",
		"without prefix": strings.TrimPrefix(strings.TrimPrefix(token, "alm_ac_"), "alm_rt_"),
		"padded":         token + "=",
		"line break":     token + "\n",
		"space":          " " + token,
		"capitals":       strings.ToUpper(token),
		"empty":          "",
		"twice":          fmt.Sprint(token, token),
		"trailing bits":  lastBitFlipped(token),
		"NUL":            token + "\x00",
	}
}

// lastBitFlipped changes bits of the last character that base64 decoding may ignore.
func lastBitFlipped(token string) string {
	const base64url = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	at := strings.IndexByte(base64url, token[len(token)-1])
	return token[:len(token)-1] + string(base64url[at^1])
}

func sorted(values []string) []string {
	return slices.Sorted(slices.Values(values))
}
