package mail

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"
)

//go:embed letter.html
var letterHTML string

// letterPage is the HTML of every letter. It loads nothing: no image, no style sheet, no tracking.
var letterPage = template.Must(template.New("letter").Parse(letterHTML))

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
	l := k.write(s, m)
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

// place names the deployment at the end of a message.
func (s site) place() string { return s.brand.Name() + " at " + s.host() }

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
