package mail

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	htmltemplate "html/template"
	"net/url"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/almonerhq/almoner/shared/page/brand"
)

// A kind describes the messages of one Kind. Its texts are templates of facts.
type kind struct {
	Kind    Kind
	Choice  string // as Settings → Security offers to turn it off; "" if it is about security, and cannot be turned off
	Days    int    // how long after it was queued the message is still sent; 2 if 0
	Subject text
	Lines   []text // paragraphs; one without text is left out
	Button  text   // text of the link
	Path    text   // local path of the link
	After   []text // paragraphs below the link
}

// ResetLife is how long a link to set a new password works.
const ResetLife = 30 * time.Minute

// life is how long after it was queued a message is still sent.
func (k kind) life() time.Duration {
	if k.Kind == Reset {
		return ResetLife
	}
	return time.Duration(cmp.Or(k.Days, 2)) * 24 * time.Hour
}

// A text is a template. The zero value is the empty text.
type text struct{ *template.Template }

// UnmarshalText parses a template.
func (t *text) UnmarshalText(source []byte) (err error) {
	list := func(items []string) string { return strings.Join(items, ", ") }
	functions := template.FuncMap{"moment": moment, "list": list}
	t.Template, err = template.New("").Funcs(functions).Parse(string(source))
	return err
}

func moment(at time.Time) string { return at.UTC().Format("2 January 2006, 15:04") + " UTC" }

//go:embed letters.json
var lettersJSON []byte

// kinds returns the table of all messages. It is read once.
var kinds = sync.OnceValue(func() (all []kind) {
	if err := json.Unmarshal(lettersJSON, &all); err != nil {
		panic("letters.json: " + err.Error())
	}
	return all
})

// kindOf returns the description of a kind, and false for one that this version does not know.
func kindOf(name Kind) (kind, bool) {
	i := slices.IndexFunc(kinds(), func(k kind) bool { return k.Kind == name })
	if i < 0 {
		return kind{}, false
	}
	return kinds()[i], true
}

// Kinds returns all kinds.
func Kinds() (all []Kind) {
	for _, k := range kinds() {
		all = append(all, k.Kind)
	}
	return all
}

// An OptionalKind is a kind that its recipients can turn off.
type OptionalKind struct {
	Kind  Kind
	Title string
}

// OptionalKinds returns the kinds that are not about security.
func OptionalKinds() (optional []OptionalKind) {
	for _, k := range kinds() {
		if k.Choice != "" {
			optional = append(optional, OptionalKind{k.Kind, k.Choice})
		}
	}
	return optional
}

// Optional reports whether recipients can turn the kind off.
func (k Kind) Optional() bool {
	known, ok := kindOf(k)
	return ok && known.Choice != ""
}

// facts are what the texts of a letter can mention. The text of other people is cleaned (M5).
type facts struct {
	Data
	Site    string    // host of the pages, which names the deployment
	Expires time.Time // of the link
	Secret  string    // of the link
}

// TellOperator says what to do about a change that an operator can have made.
func (f facts) TellOperator() string {
	return "If you did not ask for this, tell the person who runs " + f.Site +
		" or an administrator of your workspaces."
}

// Advice says what to do about a change that the recipient did not make: own, unless an operator made it.
func (f facts) Advice(own string) string {
	if f.Operator {
		return f.TellOperator()
	}
	return own
}

// Where describes the browser or the operator of an event, or is "".
func (f facts) Where() string {
	if f.Operator {
		return " by the person who runs this service"
	}
	var parts []string
	if f.Device != "" {
		parts = append(parts, strings.Replace(f.Device, "A browser", "a browser", 1))
	}
	if f.Network != "" {
		parts = append(parts, "address "+f.Network)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// A letter is the content of a message. Plain text and HTML are rendered from the same letter.
type letter struct {
	Subject  string
	Lines    []string
	Button   string
	Link     string // the only link besides Unwanted
	After    []string
	Unwanted string // the page on which the recipient turns messages of this kind off, or ""
}

// write fills in the texts of a letter.
func (k kind) write(s site, f facts) (l letter, err error) {
	fill := func(texts ...text) (filled []string) {
		for _, t := range texts {
			var out strings.Builder
			if t.Template != nil && err == nil {
				err = t.Execute(&out, f)
			}
			if out.Len() > 0 {
				filled = append(filled, out.String())
			}
		}
		return filled
	}
	one := func(t text) string { return strings.Join(fill(t), "") }
	l = letter{Subject: one(k.Subject), Lines: fill(k.Lines...), Button: one(k.Button), After: fill(k.After...)}
	if k.Path.Template != nil {
		l.Link = s.appURL + one(k.Path)
	}
	if k.Choice != "" {
		l.Unwanted = s.appURL + "/settings/security"
	}
	return l, err
}

// A site is the deployment that sends.
type site struct {
	appURL string
	brand  brand.Brand
}

// host returns the host of the pages, which names the deployment in the texts.
func (s site) host() string {
	parsed, err := url.Parse(s.appURL)
	if err != nil {
		return s.appURL
	}
	return parsed.Host
}

// hostname is host without a port.
func (s site) hostname() string {
	parsed, err := url.Parse(s.appURL)
	if err != nil {
		return "localhost"
	}
	return parsed.Hostname()
}

// place names the deployment at the end of a message.
func (s site) place() string { return s.brand.Name() + " at " + s.host() }

//go:embed letter.html
var letterHTML string

// letterPage is the HTML of every letter. It loads nothing: no image, no style sheet, no tracking.
var letterPage = htmltemplate.Must(htmltemplate.New("letter").Parse(letterHTML))

// A rendered message is ready to send.
type rendered struct {
	Subject string
	Text    string
	HTML    string
}

// render writes a message. Its data are cleaned first (M5).
func (s site) render(m Message) (rendered, error) {
	k, ok := kindOf(m.Kind)
	if !ok {
		return rendered{}, fmt.Errorf("there is no message of the kind %q", m.Kind)
	}
	m.Data, m.Name = m.Data.cleaned(), clean(m.Name)
	l, err := k.write(s, facts{m.Data, s.host(), m.Expires, m.Token.Reveal()})
	if err != nil {
		return rendered{}, fmt.Errorf("write a message: %w", err)
	}
	var page bytes.Buffer
	colour, _ := s.brand.Colour()
	if err := letterPage.Execute(&page, map[string]any{
		"Letter": l,
		"Name":   m.Name,
		"Place":  s.place(),
		"Colour": colour.String(), // white text on it is readable: the setting is checked
	}); err != nil {
		return rendered{}, fmt.Errorf("render a message: %w", err)
	}
	return rendered{Subject: clean(l.Subject), Text: l.text(m.Name, s.place()), HTML: page.String()}, nil
}

// text returns the plain text of a letter.
func (l letter) text(name, place string) string {
	var out strings.Builder
	paragraph := func(text string) { _, _ = out.WriteString(text + "\n\n") } // never fails
	if name != "" {
		paragraph("Hello " + name + ",")
	}
	for _, line := range l.Lines {
		paragraph(line)
	}
	if l.Link != "" {
		paragraph(l.Button + ":\n" + l.Link)
	}
	for _, line := range l.After {
		paragraph(line)
	}
	_, _ = out.WriteString("-- \n" + place + "\n")
	if l.Unwanted != "" {
		_, _ = out.WriteString("Turn off messages like this: " + l.Unwanted + "\n")
	}
	return out.String()
}
