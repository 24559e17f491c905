package tracing

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/almonerhq/almoner/shared/credential"
)

// Settings are the tracing settings of each program, with their standard names. Its configuration embeds
// them.
type Settings struct {
	Endpoint string            `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the collector to send traces to, by OTLP over HTTP, like http://collector.internal:4318. Empty: no traces."`
	Headers  credential.Secret `env:"OTEL_EXPORTER_OTLP_HEADERS" doc:"Headers for the collector: name=value, the value percent-encoded, separated by commas."`
	Share    float64           `env:"OTEL_TRACES_SAMPLER_ARG" envDefault:"1" doc:"Share of requests to trace, 0 to 1. The decision of a trusted proxy takes precedence."`
}

// Check reports mistakes that the types cannot show. It quotes no value.
func (s *Settings) Check() []error {
	var mistakes []error
	if s.Endpoint != "" && !isEndpoint(s.Endpoint) {
		mistakes = append(
			mistakes,
			errors.New("OTEL_EXPORTER_OTLP_ENDPOINT must be a URL like http://collector.internal:4318, without a user "+
				"name or a query"),
		)
	}
	if _, err := s.headers(); err != nil {
		mistakes = append(mistakes, err)
	}
	if !(s.Share >= 0 && s.Share <= 1) { // NaN is neither
		mistakes = append(mistakes, errors.New("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1"))
	}
	return mistakes
}

func isEndpoint(text string) bool {
	address, err := url.Parse(text)
	return err == nil && (address.Scheme == "http" || address.Scheme == "https") && address.Host != "" &&
		address.User == nil && address.RawQuery == "" && address.Fragment == ""
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// headers parses the headers as specified for OpenTelemetry exporters. It returns nil if there are none.
func (s *Settings) headers() (map[string]string, error) {
	if s.Headers == "" {
		return nil, nil
	}
	headers := map[string]string{}
	for pair := range strings.SplitSeq(s.Headers.Reveal(), ",") {
		name, encoded, _ := strings.Cut(pair, "=")
		value, err := url.PathUnescape(encoded)
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if err != nil || value == "" || !headerName.MatchString(name) ||
			strings.ContainsFunc(value, unicode.IsControl) {
			return nil, errors.New(
				"OTEL_EXPORTER_OTLP_HEADERS must be name=value, the value percent-encoded, separated by commas")
		}
		headers[name] = value
	}
	return headers, nil
}
