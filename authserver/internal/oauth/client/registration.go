package client

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A Registration is the client metadata that an application submits (spec 4.2, contract section 5).
type Registration struct {
	Name       string
	Redirects  []string
	Required   []string
	Platform   string
	Resource   string
	AuthMethod string
	// Connector requests a connector. A Platform or a Resource implies it, since the API's request body has no kind.
	Connector bool
}

// A Refusal says why a registration is refused. Redirect selects between the two error codes of RFC 7591, section
// 3.2.2.
type Refusal struct {
	Redirect bool
	Field    string
	Nth      int // position, from 1, if the field has several values; 0 if the refusal is not about one value
	Message  string
}

// Error is written for programs: the index starts at 0. It repeats no value, because a URI may contain a secret.
func (r *Refusal) Error() string {
	if r.Nth > 0 {
		return fmt.Sprintf("%s[%d]: %s", r.Field, r.Nth-1, r.Message)
	}
	return r.Message
}

func refuse(field, message string) *Refusal { return &Refusal{Field: field, Message: message} }

// platforms are the values of connectorPlatform.
var platforms = []string{"claude", "chatgpt"}

// Accept returns the client that the registration describes, without identifier, workspace and secret, or the first
// *Refusal. resources are the deployment's resource identifiers.
func (r Registration) Accept(resources []string) (Client, error) {
	c, refusals := r.Check(resources)
	if len(refusals) > 0 {
		return Client{}, refusals[0]
	}
	return c, nil
}

// Check returns what Accept returns, with a refusal for each invalid field.
func (r Registration) Check(resources []string) (Client, []*Refusal) {
	var refusals []*Refusal
	c := Client{
		Kind:      Confidential,
		Name:      strings.TrimSpace(r.Name),
		Platform:  r.Platform,
		Resource:  r.Resource,
		Redirects: r.Redirects,
	}
	if message := displayname.CheckApplication(c.Name); message != "" {
		refusals = append(refusals, refuse("name", message))
	}
	if r.Connector || r.Platform != "" || r.Resource != "" {
		c.Kind = Connector
	}
	if refusal := checkRedirects(c.Kind, r.Redirects); refusal != nil {
		refusals = append(refusals, refusal)
	}
	if c.Kind == Connector && !slices.Contains(platforms, r.Platform) {
		refusals = append(refusals,
			refuse("connectorPlatform", "connectorPlatform must be claude or chatgpt, and requires resource."))
	}
	if c.Kind == Connector && !slices.Contains(resources, r.Resource) {
		refusals = append(refusals, refuse("resource", "resource must be one of: "+strings.Join(resources, ", ")+"."))
	}
	for _, refusal := range []*Refusal{r.permissions(&c, resources), r.authMethod(&c)} {
		if refusal != nil {
			refusals = append(refusals, refusal)
		}
	}
	return c, refusals
}

func (r Registration) permissions(c *Client, resources []string) *Refusal {
	if len(r.Required) == 0 {
		return refuse("requiredPermissions", "requiredPermissions must have at least one permission.")
	}
	for i, text := range r.Required {
		if !perm.Known(perm.Permission(text)) {
			return refuse("requiredPermissions", fmt.Sprintf("requiredPermissions[%d] is not a known permission. "+
				"Known permissions: %s.", i, c.grantable()))
		}
	}
	c.Required = perm.FromStrings(r.Required)
	for _, p := range c.Required {
		if entry, _ := perm.Describe(p); c.Kind == Connector && !entry.Connector {
			return refuse("requiredPermissions", string(p)+" is not available to connectors.")
		}
	}
	if c.Kind == Connector && !slices.Contains(resources, r.Resource) {
		return nil // which permissions an unknown resource uses is unknown too
	}
	if surplus := c.Required.Without(c.At(c.Resource).Required); len(surplus) > 0 {
		return refuse("requiredPermissions", fmt.Sprintf("This resource does not use %s. A connector for this "+
			"resource can require: %s.", surplus[0], c.grantable()))
	}
	return nil
}

// grantable lists the permissions that a client of this kind and for this resource may require.
func (c Client) grantable() string {
	c.Required = perm.FullSet()
	return strings.Join(c.At(c.Resource).Required.Strings(), ", ")
}

func (r Registration) authMethod(c *Client) *Refusal {
	if c.Kind == Connector {
		if r.AuthMethod != "" && AuthMethod(r.AuthMethod) != AuthNone {
			return refuse("tokenEndpointAuthMethod",
				"A connector is a public client. Omit tokenEndpointAuthMethod or set it to none.")
		}
		c.AuthMethod = AuthNone
		return nil
	}
	switch method := AuthMethod(r.AuthMethod); method {
	case "":
		c.AuthMethod = SecretJSON
	case SecretJSON, SecretPost, SecretBasic:
		c.AuthMethod = method
	default:
		return refuse("tokenEndpointAuthMethod",
			"tokenEndpointAuthMethod must be client_secret_json, client_secret_post or client_secret_basic.")
	}
	return nil
}

const (
	maxRedirects      = 20
	maxRedirectLength = 2048
)

// reservedParameters are the parameters that an authorization response adds to the URI. A registered URI that contains
// one could forge a response.
var reservedParameters = []string{"code", "state", "iss", "error", "error_description", "response"}

// forbiddenSchemes are the schemes that no connector may have as its private-use scheme: browsers, operating systems
// and other applications give them a meaning of their own. The same is true of names that begin with a forbiddenPrefix.
var (
	forbiddenSchemes = []string{
		"javascript", "vbscript", "data", "blob", "file", "filesystem", "about", "view-source", "chrome", "ws", "wss",
		"ftp", "ssh", "mailto", "tel", "sms", "geo", "magnet", "intent", "android-app",
	}
	forbiddenPrefixes = []string{"web+", "ms-", "chrome-", "x-apple"}
)

func checkRedirects(kind Kind, uris []string) *Refusal {
	if len(uris) == 0 || len(uris) > maxRedirects {
		return &Refusal{Redirect: true, Field: "redirectUris", Message: "Enter 1 to 20 redirect URIs."}
	}
	for i, uri := range uris {
		if reason := refuseRedirect(kind, uri); reason != "" {
			refusal := &Refusal{Redirect: true, Field: "redirectUris", Message: reason}
			if len(uris) > 1 {
				refusal.Nth = i + 1
			}
			return refusal
		}
	}
	return nil
}

// refuseRedirect returns why a client of this kind cannot register a redirect URI, or "" (contract, section 5; RFC
// 9700, section 4.1). Only a connector, which proves by PKCE that it made the request, may have a private-use scheme
// (RFC 8252, section 7.1): another application on the device may claim the same scheme.
func refuseRedirect(kind Kind, uri string) string {
	if len(uri) > maxRedirectLength {
		return "A redirect URI must be at most 2,048 characters long."
	}
	if strings.ContainsFunc(uri, unprintable) || strings.Contains(uri, `\`) {
		return "A redirect URI must be printable ASCII without spaces or backslashes."
	}
	parsed, err := url.Parse(uri)
	private := err == nil && parsed.IsAbs() && parsed.Scheme != "https" && parsed.Scheme != "http" && kind == Connector
	switch {
	case err != nil || !parsed.IsAbs() || (!private && parsed.Hostname() == "") ||
		parsed.Host+parsed.Path+parsed.Opaque == "":
		return "A redirect URI must be absolute, such as https://app.example.org/callback."
	// This case must precede the ones that check the host.
	case parsed.User != nil || strings.Contains(parsed.Host, "@"):
		return "A redirect URI must not contain a user name or password."
	case parsed.Host != "" && !strings.Contains(uri, "://"+parsed.Host): // net/url has decoded percent escapes
		return "The host of a redirect URI must not contain % escapes."
	case private && reserved(parsed.Scheme):
		return "A redirect URI must use https, or a scheme that only the application uses, such as " +
			"com.example.app:/callback."
	case !private && parsed.Scheme != "https" && (parsed.Scheme != "http" || !loopback(parsed.Hostname())):
		return "A redirect URI must use https. Only localhost, 127.0.0.1 and [::1] can use http. If the application " +
			"is behind a proxy, set its public address in its OAuth library (deploy/docs/libraries.md)."
	case strings.Contains(uri, "#"):
		return "A redirect URI must not contain a fragment (#)."
	case strings.Contains(uri, "*"):
		return "A redirect URI must not contain a wildcard (*). Register each redirect URI."
	case !opens(parsed, private):
		return "The host of a redirect URI must be an IP address or a name of letters, digits, hyphens, underscores " +
			"and dots (other names in their xn-- form), with an optional port from 1 to 65535."
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return "The query of the redirect URI is not valid."
	}
	for name := range query {
		if slices.Contains(reservedParameters, strings.ToLower(name)) {
			return "A redirect URI must not have a query parameter named code, state, iss, error, error_description " +
				"or response."
		}
	}
	return ""
}

var (
	namePattern   = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$`)
	numberPattern = regexp.MustCompile(`^([0-9]+|0[xX][0-9A-Fa-f]*)$`)
)

func reserved(scheme string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(scheme, prefix) }
	return slices.Contains(forbiddenSchemes, scheme) || slices.ContainsFunc(forbiddenPrefixes, begins)
}

// opens reports whether browsers accept the host and the port. net/url accepts nearly everything. A URI with a
// private-use scheme may have no host.
func opens(u *url.URL, private bool) bool {
	if private && u.Host == "" {
		return true
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	if strings.HasPrefix(u.Host, "[") {
		address, err := netip.ParseAddr(u.Hostname())
		return err == nil && address.Is6() && address.Zone() == ""
	}
	if private {
		return namePattern.MatchString(u.Hostname())
	}
	labels := strings.Split(strings.TrimSuffix(u.Hostname(), "."), ".")
	if numberPattern.MatchString(labels[len(labels)-1]) { // browsers parse any number as an IPv4 address
		address, err := netip.ParseAddr(u.Hostname())
		return err == nil && address.Is4()
	}
	return namePattern.MatchString(u.Hostname()) && !slices.Contains(labels, "xn--")
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// loopbackPattern splits a loopback redirect URI into the host, the port and the rest.
var loopbackPattern = regexp.MustCompile(`^(http://(?:localhost|127\.0\.0\.1|\[::1\]))(?::([0-9]{1,5}))?((?:[/?].*)?)$`)

// loopbackButForPort reports whether two redirect URIs are loopback URIs that differ at most in the port. A native
// application cannot know in advance which port is free (RFC 8252, section 7.3).
func loopbackButForPort(listed, requested string) bool {
	a, b := loopbackPattern.FindStringSubmatch(listed), loopbackPattern.FindStringSubmatch(requested)
	if a == nil || b == nil || a[1] != b[1] || a[3] != b[3] {
		return false
	}
	if b[2] == "" {
		return true
	}
	port, err := strconv.Atoi(b[2])
	return err == nil && port >= 1 && port <= 65535
}
