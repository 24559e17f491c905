package openapicheck

import (
	"mime"
	"net/url"
	"strings"

	"github.com/almonerhq/almoner/shared/contract/openapi"
)

// checkRequest checks that the description allows a request that succeeded. It ignores what the description does not
// name, as the product does.
func (c *Checker) checkRequest(x Exchange, o openapi.Operation) []string {
	var problems []string
	for _, p := range c.Document.Parameters(o) {
		var values []string
		switch p.Text("in") {
		case "query":
			values = x.Query[p.Text("name")]
		case "header":
			values = x.Header.Values(p.Text("name"))
		default: // path: already matched
			continue
		}
		what := p.Text("in") + " parameter " + p.Text("name")
		switch {
		case len(values) > 0:
			problems = append(problems, c.checkText(what, p.Map("schema"), values[0])...)
		case p.Value("required") == true:
			problems = append(problems, what+" is described as required, but the request succeeded without it")
		}
	}
	if authorization := x.Header.Get("Authorization"); authorization == "" && needsCredential(o) {
		problems = append(problems, "a credential is described as required, but the request succeeded without it")
	}
	body := c.Document.Resolve(o.Map("requestBody"))
	switch {
	case len(x.Body) > 0 && body != nil:
		problems = append(
			problems,
			c.checkBody("body of the request", body.Map("content"), x.Header.Get("Content-Type"), x.Body)...)
	case len(x.Body) == 0 && body.Value("required") == true:
		problems = append(problems, "a body is described as required, but the request succeeded without it")
	}
	return problems
}

// needsCredential reports whether every way of calling the operation needs a credential.
func needsCredential(o openapi.Operation) bool {
	for _, one := range o.List("security") {
		if scheme, _ := one.(openapi.Object); len(scheme) == 0 {
			return false
		}
	}
	return len(o.List("security")) > 0
}

func (c *Checker) checkBody(what string, content openapi.Object, contentType string, body []byte) []string {
	mediaType, _, err := mime.ParseMediaType(contentType)
	media, _ := content.Value(mediaType).(openapi.Object)
	if err != nil || media == nil {
		return []string{"the media type of the " + what + " is not described"}
	}
	schema := media.Map("schema")
	if schema == nil {
		return nil
	}
	var value any = string(body)
	switch {
	case strings.HasSuffix(mediaType, "json"):
		if value, err = decode(body); err != nil {
			return []string{what + " is not JSON"}
		}
	case mediaType == "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return []string{what + " is not a form"}
		}
		fields := map[string]any{}
		for field, values := range form {
			fields[field] = values[0]
		}
		value = fields
	}
	return c.schemas.validate(what, schema, value)
}
