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
	Contact     string `env:"ALMONER_CONTACT" doc:"Contact that pages and mails of authserver name where people need help: an e-mail address or an https:// URL. If it is empty, they say \"the person who runs this service\"."`
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
	if !c.Named() {
		return Unnamed
	}
	name := c.name
	if name == "" {
		name = c.address
	}
	return template.HTML(`<a href="` + html.EscapeString(c.link) + `">` + html.EscapeString(name) + `</a>`)
}

// Named reports whether the deployment names a contact.
func (c Contact) Named() bool { return c.link != "" }

// Apart returns a text of other people in which no phrase stands for the contact.
func Apart(text string, phrases ...string) string {
	for _, phrase := range phrases {
		text = strings.ReplaceAll(text, phrase, strings.ReplaceAll(phrase, " ", "\u00a0"))
	}
	return text
}

// In returns a text as HTML in which a link to the contact, if there is one, stands for what the text calls it.
func (c Contact) In(text, called string) template.HTML {
	escaped := html.EscapeString(text)
	if c.Named() {
		escaped = strings.ReplaceAll(escaped, html.EscapeString(called), string(c.Link()))
	}
	return template.HTML(escaped)
}

// Within is In for plain text, which has the address after the name.
func (c Contact) Within(text, called string) string {
	if !c.Named() {
		return text
	}
	contact := c.address
	if c.name != "" {
		contact = c.name + " (" + c.address + ")"
	}
	return strings.ReplaceAll(text, called, contact)
}
