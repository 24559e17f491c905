package wire

import (
	"net/http"
	"strings"
)

// A Challenge is one scheme of WWW-Authenticate with its parameters. The names are in lower case (RFC 9110,
// section 11.6.1).
type Challenge struct {
	Scheme     string
	Parameters map[string]string
}

// Bearer returns the challenge of the scheme Bearer, or false if there is none.
func Bearer(header http.Header) (Challenge, bool) {
	for _, line := range header.Values("WWW-Authenticate") {
		for _, c := range challenges(line) {
			if strings.EqualFold(c.Scheme, "bearer") {
				return c, true
			}
		}
	}
	return Challenge{}, false
}

// challenges parses one line. It skips what it cannot parse.
func challenges(line string) []Challenge {
	var all []Challenge
	for rest := line; rest != ""; {
		var word string
		rest = strings.TrimLeft(rest, " \t,")
		word, rest = token(rest)
		if word == "" {
			return all
		}
		after := strings.TrimLeft(rest, " \t")
		if !strings.HasPrefix(after, "=") {
			all = append(all, Challenge{word, map[string]string{}})
			continue
		}
		var value string
		value, rest = quotedOrToken(strings.TrimLeft(after[1:], " \t"))
		if len(all) > 0 {
			all[len(all)-1].Parameters[strings.ToLower(word)] = value
		}
	}
	return all
}

func token(text string) (string, string) {
	end := strings.IndexAny(text, " \t,=\"")
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end:]
}

func quotedOrToken(text string) (string, string) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, " \t,")
		if end < 0 {
			return text, ""
		}
		return text[:end], text[end:]
	}
	var value strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '"':
			return value.String(), text[i+1:]
		case text[i] == '\\' && i+1 < len(text):
			i++
		}
		value.WriteByte(text[i])
	}
	return value.String(), ""
}
