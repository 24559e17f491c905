package client

import (
	"fmt"
	"slices"
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
	c.Required = perm.Every()
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
