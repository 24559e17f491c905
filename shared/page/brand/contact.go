package brand

import (
	"errors"
	"html"
	"html/template"
	"net/url"
	"strings"

	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// Unnamed is what pages and mails call the contact of a deployment that sets none.
const Unnamed = "the person who runs this service"

// ContactOptions are the settings of the contact. The configuration of authserver embeds them.
type ContactOptions struct {
	Contact     string `env:"ALMONER_CONTACT" doc:"Whom pages and mails of authserver tell people to ask for help: an e-mail address or an https:// URL. Empty: they say \"the person who runs this service\"."`
	ContactName string `env:"ALMONER_CONTACT_NAME" doc:"Name of ALMONER_CONTACT, which pages and mails show in its place, up to 40 characters."`
}

// Check reports settings that are not valid, without quoting their values.
func (o *ContactOptions) Check() (mistakes []error) {
	if o.Contact != "" && o.Read().link == "" {
		mistakes = append(mistakes, errors.New("ALMONER_CONTACT must be an e-mail address or an https:// URL"))
	}
	if o.ContactName != "" && o.Contact == "" {
		mistakes = append(mistakes, errors.New("ALMONER_CONTACT_NAME needs ALMONER_CONTACT"))
	}
	if message := displayname.Check(o.ContactName, maxName); o.ContactName != "" && message != "" {
		mistakes = append(mistakes, errors.New("ALMONER_CONTACT_NAME is not valid: "+message))
	}
	return mistakes
}

// Read returns the contact.
func (o *ContactOptions) Read() Contact {
	c := Contact{name: o.ContactName, address: o.Contact}
	if email, ok := spelling.Email(o.Contact); ok {
		c.address, c.link = email, "mailto:"+url.PathEscape(spelling.OnWire(email))
	} else if site, err := url.Parse(o.Contact); err == nil && site.Scheme == "https" && site.Hostname() != "" &&
		site.User == nil {
		c.link = site.String()
		c.address = strings.TrimSuffix(strings.TrimPrefix(c.link, "https://"), "/")
	}
	return c
}

// A Contact is whom people ask for what only the operator of a deployment can do. The zero value has no name.
type Contact struct {
	name    string // or ""
	address string // as people read it
	link    string
}

// Link returns the contact as a page names it: a link, or Unnamed.
func (c Contact) Link() template.HTML {
	if c.link == "" {
		return Unnamed
	}
	name := c.name
	if name == "" {
		name = c.address
	}
	return template.HTML(`<a href="` + html.EscapeString(c.link) + `">` + html.EscapeString(name) + `</a>`)
}

// In returns a text as HTML in which the contact stands for Unnamed.
func (c Contact) In(text string) template.HTML {
	return template.HTML(strings.ReplaceAll(html.EscapeString(text), Unnamed, string(c.Link())))
}
