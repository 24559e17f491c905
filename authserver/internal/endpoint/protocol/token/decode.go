package token

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/web"
)

// MaxBody is the length limit of a body, in bytes.
const MaxBody = 64 << 10

// Parameters are the parameters of a request to an OAuth endpoint, each given once.
type Parameters struct {
	JSON   bool
	Values map[string]string
}

// Decode reads the body of a request. known are the parameters of the endpoint: in JSON, each is a string whose name
// matches its case; unknown names are ignored. The query string is not read. Its errors are *apierr.Error.
func Decode(w http.ResponseWriter, r *http.Request, known ...string) (Parameters, error) {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || len(r.Header.Values("Content-Type")) > 1 {
		mediaType = ""
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return Parameters{}, apierr.New(apierr.TooLarge, "The body is larger than 64 KiB.")
	}
	if err != nil {
		return Parameters{}, apierr.New(apierr.Invalid, "The body could not be read.")
	}
	if web.Encoded(r.Header) {
		return Parameters{}, apierr.New(apierr.Invalid, web.EncodedWords)
	}
	switch mediaType {
	case "application/json":
		values, problem := decodeJSON(body, known)
		return answer(true, values, problem)
	case "application/x-www-form-urlencoded":
		values, problem := decodeForm(body)
		return answer(false, values, problem)
	}
	return Parameters{}, apierr.New(
		apierr.Invalid,
		"Content-Type must be application/json or application/x-www-form-urlencoded.",
	)
}

func answer(isJSON bool, values map[string]string, problem string) (Parameters, error) {
	if problem != "" {
		return Parameters{}, apierr.New(apierr.Invalid, problem)
	}
	return Parameters{JSON: isJSON, Values: values}, nil
}

func decodeForm(body []byte) (values map[string]string, problem string) {
	parsed, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, "The body is not a valid form."
	}
	values = map[string]string{}
	for name, all := range parsed {
		if len(all) > 1 {
			return nil, "A parameter appears more than once."
		}
		if !utf8.ValidString(name) || !utf8.ValidString(all[0]) {
			return nil, "The body must be UTF-8."
		}
		values[name] = all[0]
	}
	return values, ""
}

// decodeJSON reads by the rules of JSON v2 (duplicate keys, invalid UTF-8 and trailing data are errors). A known key
// must match its case.
func decodeJSON(body []byte, known []string) (values map[string]string, problem string) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, "The body must be one JSON object without duplicate keys."
	}
	values = map[string]string{}
	for key, value := range members {
		if !slices.Contains(known, key) {
			if slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) }) {
				return nil, "Keys must be in lower case."
			}
			continue
		}
		if value.Kind() != '"' {
			return nil, key + " must be a string."
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			return nil, key + " must be a string."
		}
		values[key] = text
	}
	return values, ""
}
