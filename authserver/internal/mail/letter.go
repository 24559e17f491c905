package mail

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"
	_ "time/tzdata" // the images have no time zones
	"unicode"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/page/brand"
)

// DefaultLanguage is the language of a recipient who has chosen none.
const DefaultLanguage = "en"

// A language is the texts of all letters. Each is a file in the folder languages, whose name is the language's.
type language struct {
	Tag     string   // BCP 47
	Title   string   // of the language, in itself
	Months  []string // names, from January
	Hello   text
	Place   text   // which deployment sent it
	Contact string // of a deployment that names none
	Help    text   // whom to ask, if the deployment names a contact
	Tell    text   // in place of the advice, about a change that an operator made
	Copy    string // above the address of the button
	// Unwanted is the text of the link to the page on which recipients turn messages of a kind off.
	Unwanted string
	Details  map[string]string // labels of the details, by their names
	Letters  map[Kind]texts
}

// texts are the words of the letters of one kind. Those without text are left out.
type texts struct {
	Subject text
	Lines   []text // paragraphs
	List    text   // above the permissions
	Advice  text   // what to do if the recipient does not expect the change
	Button  text   // text of the link
	After   []text // paragraphs below the link
}

// A text is a template of facts. The zero value is the empty text.
type text struct{ *template.Template }

// UnmarshalText parses a template.
func (t *text) UnmarshalText(source []byte) (err error) {
	t.Template, err = template.New("").Parse(string(source))
	return err
}

//go:embed languages/*.json
var languageFiles embed.FS

// languages returns the languages by their names. They are read once.
var languages = sync.OnceValue(func() map[string]*language {
	entries, err := languageFiles.ReadDir("languages")
	all := map[string]*language{}
	for _, entry := range entries {
		content, failed := languageFiles.ReadFile("languages/" + entry.Name())
		l := &language{}
		err = errors.Join(err, failed, json.Unmarshal(content, l))
		all[strings.TrimSuffix(entry.Name(), ".json")] = l
	}
	if err != nil {
		panic(fmt.Errorf("the languages of mails: %w", err))
	}
	return all
})

// A Language is a language that recipients can choose.
type Language struct{ Name, Title string }

// Languages returns the languages of mails, the default first.
func Languages() (all []Language) {
	for name, l := range languages() {
		all = append(all, Language{name, l.Title})
	}
	slices.SortFunc(all, func(a, b Language) int {
		if a.Name == DefaultLanguage || b.Name == DefaultLanguage {
			return map[bool]int{true: -1, false: 1}[a.Name == DefaultLanguage]
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
}

// languageOf returns the language with the name, or the default language.
func languageOf(name string) *language {
	if l := languages()[name]; l != nil {
		return l
	}
	return languages()[DefaultLanguage]
}

// Zone returns the time zone with a name of the IANA database, such as Europe/London, or nil.
func Zone(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil
	}
	return zone
}

// facts are what the texts of a letter can mention. The text of other people is cleaned (M5).
type facts struct {
	Data
	Brand     string    // name of the deployment
	Site      string    // host of its pages
	Contact   string    // whom to ask
	Recipient string    // name of the recipient, or ""
	Expires   time.Time // of the link
	Secret    string    // of the link

	language *language
	zone     *time.Location
}

// Moment returns a time in the time zone of the recipient, or in UTC, as people write it.
func (f facts) Moment(at time.Time) string {
	at = at.In(f.zone)
	zone, _ := at.Zone()
	if strings.HasPrefix(zone, "+") || strings.HasPrefix(zone, "-") { // a zone without an abbreviation
		zone = "UTC" + zone
	}
	return strconv.Itoa(at.Day()) + " " + f.language.Months[at.Month()-1] + at.Format(" 2006, 15:04 ") + zone
}

// detail returns the value of a detail, or "" if it is not known.
func (f facts) detail(name string) string {
	moment := func(at time.Time) string {
		if at.IsZero() {
			return ""
		}
		return f.Moment(at)
	}
	switch name {
	case "at":
		return moment(f.At)
	case "ends":
		return moment(f.Ends)
	case "device":
		return f.Device
	case "address", "network":
		return f.Network
	case "name":
		return f.Name
	case "email":
		return f.Email
	case "by":
		if f.Operator {
			return f.Contact
		}
	}
	return ""
}

// A detail is a row of a letter, such as when something happened.
type detail struct{ Label, Value string }

// A letter is the content of a message. Plain text and HTML are rendered from the same letter.
type letter struct {
	Subject   string
	Brand     string
	Workspace string   // or ""
	Hello     string   // or ""
	Lines     []string // paragraphs above Details
	List      string   // above Items
	Items     []string
	Details   []detail
	Advice    string // below Details
	Button    string
	Link      string   // the only link besides Unwanted and the contact
	After     []string // paragraphs below the button
	Place     string
	Help      string // or ""
	Unwanted  string // the page on which the recipient turns messages of this kind off, or ""
}

// A writer fills in texts with facts, until one fails.
type writer struct {
	facts
	err error
}

func (w *writer) one(t text) string {
	var out strings.Builder
	if t.Template != nil && w.err == nil {
		w.err = t.Execute(&out, w.facts)
	}
	return strings.TrimSpace(out.String())
}

func (w *writer) all(of ...text) (filled []string) {
	for _, t := range of {
		if line := w.one(t); line != "" {
			filled = append(filled, line)
		}
	}
	return filled
}

// write fills in the texts of a letter.
func (k kind) write(s site, f facts) (letter, error) {
	w, words := &writer{facts: f}, f.language.Letters[k.Mail]
	l := letter{
		Subject:   w.one(words.Subject),
		Brand:     f.Brand,
		Workspace: f.Workspace,
		Lines:     w.all(words.Lines...),
		Advice:    w.one(words.Advice),
		Button:    w.one(words.Button),
		After:     w.all(words.After...),
		Place:     w.one(f.language.Place),
	}
	if f.Recipient != "" {
		l.Hello = w.one(f.language.Hello)
	}
	if l.List = w.one(words.List); l.List != "" {
		l.Items = f.Permissions
	}
	if f.Operator && l.Advice != "" {
		l.Advice = w.one(f.language.Tell)
	}
	if s.contact.Named() {
		l.Help = w.one(f.language.Help)
	}
	for _, name := range k.Details {
		if value := f.detail(name); value != "" {
			l.Details = append(l.Details, detail{f.language.Details[name], value})
		}
	}
	if l.Link = f.Home; l.Link == "" && k.Path.Template != nil {
		l.Link = s.appURL + w.one(k.Path)
	}
	if k.Choice != "" {
		l.Unwanted = s.appURL + "/settings/security"
	}
	return l, w.err
}

// A site is the deployment that sends.
type site struct {
	appURL  string
	brand   brand.Brand
	contact brand.Contact
}

// address returns the URL of the pages.
func (s site) address() *url.URL {
	parsed, err := url.Parse(s.appURL)
	if err != nil { // not an appURL that the configuration accepts
		return &url.URL{Host: "localhost"}
	}
	return parsed
}

//go:embed letter.html
var letterHTML string

// letterPage is the HTML of every letter. It loads nothing: no image, no style sheet, no tracking. Mail programs know
// tables, attributes and inline styles; the few that read the style element get the colours of the dark scheme.
var letterPage = htmltemplate.Must(htmltemplate.New("letter").Parse(letterHTML))

// A page is what letter.html shows.
type page struct {
	letter
	Tag, Copy, TurnOff string
	Light, Dark        brand.Palette
	Secret             bool // the link must not get lost: its address is shown too

	contact brand.Contact
	unnamed string
}

// Initial is the letter that stands for the deployment: most mail programs show no images.
func (p page) Initial() string {
	first, _ := utf8.DecodeRuneInString(p.Brand)
	return string(unicode.ToUpper(first))
}

// Linked returns a text in which the contact is a link.
func (p page) Linked(text string) htmltemplate.HTML { return p.contact.In(text, p.unnamed) }

// render writes a message. Its data are cleaned first (M5).
func (s site) render(m Message) (Envelope, error) {
	k, ok := kindOf(m.Kind)
	if !ok {
		return Envelope{}, fmt.Errorf("there is no message of the kind %q", m.Kind)
	}
	m.Data, m.Name = m.Data.cleaned(), clean(m.Name)
	f := facts{
		Data:      m.Data,
		Brand:     s.brand.Name(),
		Site:      s.address().Host,
		Recipient: m.Name,
		Expires:   m.Expires,
		Secret:    m.Token.Reveal(),
		language:  languageOf(m.Language),
		zone:      time.UTC,
	}
	f.Contact = f.language.Contact
	if zone := Zone(m.Zone); zone != nil {
		f.zone = zone
	}
	l, err := k.write(s, f)
	if err != nil {
		return Envelope{}, fmt.Errorf("write a message: %w", err)
	}
	var content bytes.Buffer
	if err := letterPage.Execute(&content, page{
		letter:  l,
		Tag:     f.language.Tag,
		Copy:    f.language.Copy,
		TurnOff: f.language.Unwanted,
		Light:   s.brand.Palette(brand.LightGround),
		Dark:    s.brand.Palette(brand.DarkGround),
		Secret:  m.Token != "",
		contact: s.contact,
		unnamed: f.language.Contact,
	}); err != nil {
		return Envelope{}, fmt.Errorf("render a message: %w", err)
	}
	return Envelope{
		MessageID: m.ID.String() + "@" + s.address().Hostname(),
		Address:   m.Address,
		Name:      m.Name,
		Subject:   clean(l.Subject),
		Text:      s.contact.Within(l.text(f.language), f.language.Contact),
		HTML:      content.String(),
	}, nil
}

// text returns the plain text of a letter.
func (l letter) text(in *language) string {
	head := l.Brand
	if l.Workspace != "" {
		head += " · " + l.Workspace
	}
	paragraphs := append([]string{head, l.Hello}, l.Lines...)
	if len(l.Items) > 0 {
		paragraphs = append(paragraphs, l.List+"\n- "+strings.Join(l.Items, "\n- "))
	}
	var rows []string
	for _, d := range l.Details {
		rows = append(rows, d.Label+": "+d.Value)
	}
	paragraphs = append(paragraphs, strings.Join(rows, "\n"), l.Advice)
	if l.Link != "" {
		paragraphs = append(paragraphs, l.Button+":\n"+l.Link)
	}
	paragraphs = append(paragraphs, l.After...)
	paragraphs = slices.DeleteFunc(paragraphs, func(p string) bool { return p == "" })
	end := "-- \n" + l.Place + "\n"
	if l.Help != "" {
		end += l.Help + "\n"
	}
	if l.Unwanted != "" {
		end += in.Unwanted + ": " + l.Unwanted + "\n"
	}
	return strings.Join(append(paragraphs, end), "\n\n")
}
