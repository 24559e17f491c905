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

// maxBody is the length limit of a body, in bytes.
const maxBody = 64 << 10

// decoded are the parameters of a request to an OAuth endpoint, each given once.
type decoded struct {
	JSON   bool
	Values map[string]string
}

// decode reads the body of a request. known are the parameters of the endpoint: in JSON, each is a string whose name
// matches its case; unknown names are ignored. The query string is not read. Its errors are *apierr.Error.
func decode(w http.ResponseWriter, r *http.Request, known ...string) (decoded, error) {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || len(r.Header.Values("Content-Type")) > 1 {
		mediaType = ""
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return decoded{}, apierr.New(apierr.TooLarge, "The body is larger than 64 KiB.")
	}
	if err != nil {
		return decoded{}, apierr.New(apierr.Invalid, "The body could not be read.")
	}
	if web.Encoded(r.Header) {
		return decoded{}, apierr.New(apierr.Invalid, web.EncodedWords)
	}
	out, problem := decoded{JSON: mediaType == "application/json"}, ""
	switch mediaType {
	case "application/json":
		out.Values, problem = decodeJSON(body, known)
	case "application/x-www-form-urlencoded":
		out.Values, problem = decodeForm(body)
	default:
		problem = "Content-Type must be application/json or application/x-www-form-urlencoded."
	}
	if problem != "" {
		return decoded{}, apierr.New(apierr.Invalid, problem)
	}
	return out, nil
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
